// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The cni-bridge developers

// Runs cases with libcni: one JSON object per line on standard input, one answer per line on standard output.
//
// Plugins are not executed: libcni's exec interface returns the answers that the case has. With "real" they are.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	_ "unsafe" // for go:linkname

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
)

// libcni's own translation of a failed plugin into an error; empty.s allows a function without a body.
//
//go:linkname pluginErr github.com/containernetworking/cni/pkg/invoke.(*RawExec).pluginErr
func pluginErr(e *invoke.RawExec, err error, stdout, stderr []byte) error

type answer struct {
	Status int    `json:"status"`
	Stdout []byte `json:"stdout"`
	Stderr []byte `json:"stderr"`
}

type operation struct {
	Op      string                       `json:"op"`
	Percent int                          `json:"percent"`
	Content []byte                       `json:"content"`
	Answers map[string]map[string]answer `json:"answers"`
	Valid   []types.GCAttachment         `json:"valid"`
}

type request struct {
	ConfDir    string                 `json:"confDir"`
	CacheDir   string                 `json:"cacheDir"`
	PluginDirs []string               `json:"pluginDirs"`
	Network    string                 `json:"network"`
	ID         string                 `json:"containerID"`
	IfName     string                 `json:"ifname"`
	NetNS      string                 `json:"netns"`
	Args       [][2]string            `json:"args"`
	Capability map[string]interface{} `json:"capabilityArgs"`
	Operations []operation            `json:"operations"`
	Real       bool                   `json:"real"`
}

type execution struct {
	Plugin      string            `json:"plugin"`
	Environment map[string]string `json:"environment"`
	Stdin       []byte            `json:"stdin"`
}

type observation struct {
	Error      string            `json:"error"`
	Code       uint              `json:"code"`
	Msg        string            `json:"msg"`
	Details    string            `json:"details"`
	Value      json.RawMessage   `json:"value"`
	Executions []execution       `json:"executions"`
	Records    map[string][]byte `json:"records"`
}

type recorder struct {
	version.PluginDecoder
	answers    map[string]map[string]answer
	executions []execution
}

func (r *recorder) FindInPath(plugin string, paths []string) (string, error) {
	return invoke.FindInPath(plugin, paths)
}

func (r *recorder) ExecPlugin(_ context.Context, path string, stdin []byte, environ []string) ([]byte, error) {
	environment := map[string]string{}
	for _, variable := range environ {
		key, value, _ := strings.Cut(variable, "=")
		environment[key] = value
	}
	plugin := filepath.Base(path)
	r.executions = append(r.executions, execution{plugin, environment, stdin})
	given := r.answers[plugin][environment["CNI_COMMAND"]]
	if given.Status != 0 {
		end := fmt.Errorf("exit status %d", given.Status)
		return nil, pluginErr(&invoke.RawExec{}, end, given.Stdout, given.Stderr)
	}
	return given.Stdout, nil
}

func (o *observation) fail(err error) {
	if err == nil {
		return
	}
	o.Error = "failed: " + err.Error() // the text may be empty
	var found *types.Error
	if errors.As(err, &found) {
		o.Code, o.Msg, o.Details = found.Code, found.Msg, found.Details
	}
}

func (o *observation) succeed(value interface{}) {
	o.Value, _ = json.Marshal(value)
}

func run(r request) (observations []observation) {
	ctx := context.Background()
	rt := &libcni.RuntimeConf{
		ContainerID: r.ID, NetNS: r.NetNS, IfName: r.IfName, Args: r.Args, CapabilityArgs: r.Capability,
	}
	fake := &recorder{}
	var exec invoke.Exec = fake
	if r.Real {
		exec = nil
	}
	cni := libcni.NewCNIConfigWithCacheDir(r.PluginDirs, r.CacheDir, exec)
	record := filepath.Join(r.CacheDir, "results", fmt.Sprintf("%s-%s-%s", r.Network, r.ID, r.IfName))
	network, err := libcni.LoadNetworkConf(r.ConfDir, r.Network)
	loaded := observation{}
	loaded.fail(err)
	if err == nil {
		names := []string{}
		for _, plugin := range network.Plugins {
			names = append(names, plugin.Network.Type)
		}
		loaded.succeed(map[string]interface{}{
			"name": network.Name, "cniVersion": network.CNIVersion, "disableCheck": network.DisableCheck,
			"disableGC": network.DisableGC, "plugins": names,
		})
	}
	observations = append(observations, loaded)
	if err != nil {
		return observations
	}
	for _, one := range r.Operations {
		seen := observation{Records: map[string][]byte{}}
		fake.executions = nil
		func() {
			defer func() {
				if panicked := recover(); panicked != nil {
					seen.Error = fmt.Sprintf("panic: %v", panicked)
				}
			}()
			perform(ctx, cni, network, rt, one, record, fake, &seen)
		}()
		seen.Executions = fake.executions
		files, _ := os.ReadDir(filepath.Join(r.CacheDir, "results"))
		for _, file := range files {
			seen.Records[file.Name()], _ = os.ReadFile(filepath.Join(r.CacheDir, "results", file.Name()))
		}
		observations = append(observations, seen)
	}
	return observations
}

func perform(
	ctx context.Context, cni *libcni.CNIConfig, network *libcni.NetworkConfigList, rt *libcni.RuntimeConf,
	one operation, record string, fake *recorder, seen *observation,
) {
	switch one.Op {
	case "answers":
		fake.answers = one.Answers
	case "add":
		result, err := cni.AddNetworkList(ctx, network, rt)
		seen.fail(err)
		if err != nil {
			// What the specification requires of the caller.
			_ = cni.DelNetworkList(ctx, network, rt)
		} else {
			seen.succeed(result)
		}
	case "check":
		seen.fail(cni.CheckNetworkList(ctx, network, rt))
	case "del":
		seen.fail(cni.DelNetworkList(ctx, network, rt))
	case "gc":
		seen.fail(cni.GCNetworkList(ctx, network, &libcni.GCArgs{ValidAttachments: one.Valid}))
	case "status":
		seen.fail(cni.GetStatusNetworkList(ctx, network))
	case "version":
		info, err := cni.GetVersionInfo(ctx, network.Plugins[0].Network.Type)
		seen.fail(err)
		if err == nil {
			seen.succeed(info.SupportedVersions())
		}
	case "truncate":
		content, err := os.ReadFile(record)
		if err == nil {
			_ = os.WriteFile(record, content[:len(content)*one.Percent/100], 0o600)
		}
	case "replace":
		_ = os.WriteFile(record, one.Content, 0o600) // the name may be too long
	}
}

func main() {
	lines := bufio.NewReaderSize(os.Stdin, 1<<20)
	answers := bufio.NewWriter(os.Stdout)
	encoder := json.NewEncoder(answers)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		one := request{}
		if err := json.Unmarshal(line, &one); err != nil {
			fmt.Fprintln(os.Stderr, "bad request:", err)
			os.Exit(1)
		}
		if err := encoder.Encode(run(one)); err != nil {
			fmt.Fprintln(os.Stderr, "bad answer:", err)
			os.Exit(1)
		}
		answers.Flush()
	}
}

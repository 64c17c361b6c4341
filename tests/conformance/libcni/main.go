// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The cni-bridge developers

// A driver for libcni, which calls it as cnitool does: `libcni CACHE add|check|del NETWORK NETNS`.
package main

import (
	"context"
	"crypto/sha512"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/containernetworking/cni/libcni"
)

func main() {
	if err := run(os.Args[1], os.Args[2], os.Args[3], os.Args[4]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(cache, verb, network, netns string) error {
	list, err := libcni.LoadConfList(os.Getenv("NETCONFPATH"), network)
	if err != nil {
		return err
	}
	var capabilities map[string]interface{}
	if text := os.Getenv("CAP_ARGS"); text != "" {
		if err := json.Unmarshal([]byte(text), &capabilities); err != nil {
			return err
		}
	}
	var args [][2]string
	for _, pair := range strings.Split(os.Getenv("CNI_ARGS"), ";") {
		if key, value, found := strings.Cut(pair, "="); found {
			args = append(args, [2]string{key, value})
		}
	}
	netns, err = filepath.Abs(netns)
	if err != nil {
		return err
	}
	digest := sha512.Sum512([]byte(netns))
	attachment := &libcni.RuntimeConf{
		ContainerID:    fmt.Sprintf("cnitool-%x", digest[:10]),
		NetNS:          netns,
		IfName:         os.Getenv("CNI_IFNAME"),
		Args:           args,
		CapabilityArgs: capabilities,
	}
	cni := libcni.NewCNIConfigWithCacheDir(filepath.SplitList(os.Getenv("CNI_PATH")), cache, nil)
	ctx := context.Background()
	switch verb {
	case "add":
		result, err := cni.AddNetworkList(ctx, list, attachment)
		if err != nil {
			return err
		}
		return result.Print()
	case "check":
		return cni.CheckNetworkList(ctx, list, attachment)
	case "del":
		return cni.DelNetworkList(ctx, list, attachment)
	}
	return fmt.Errorf("unknown command %s", verb)
}

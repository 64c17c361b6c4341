// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The cni-bridge developers
//
// The site's search runs in a worker. Browsers refuse workers to pages that are opened as files; there, the script of
// the worker runs in an invisible frame.
if (location.protocol === "file:") {
  window.Worker = class {
    #frame = document.createElement("iframe");
    #waiting = []; // messages to a script that is not loaded yet
    #send = (data) => this.#waiting.push(data);

    constructor(url) {
      this.#frame.hidden = true;
      this.#frame.srcdoc = "<!doctype html>";
      this.#frame.onload = () => this.#load(url);
      document.body.append(this.#frame);
    }

    #load(url) {
      const inside = this.#frame.contentWindow;
      const receive = inside.postMessage.bind(inside);
      inside.postMessage = (data) => setTimeout(() => this.onmessage?.({ data: structuredClone(data) }));
      const script = inside.document.createElement("script");
      script.src = url;
      script.onerror = (event) => this.onerror?.(event);
      script.onload = () => {
        this.#send = (data) => receive(data, "*");
        this.#waiting.forEach(this.#send);
      };
      inside.document.head.append(script);
    }

    postMessage(data) {
      this.#send(data);
    }

    terminate() {
      this.#frame.remove();
    }
  };
}

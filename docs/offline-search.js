// Pages opened from the disk may not start workers: the search runs in a hidden frame instead.
class FrameWorker extends EventTarget {
  constructor(url) {
    super();
    this.frame = document.createElement("iframe");
    this.frame.hidden = true;
    document.body.appendChild(this.frame);
    const page = this.frame.contentWindow.document;
    page.open();
    page.write(
      "<html><body><script>postMessage = parent.postMessage.bind(parent);" +
      "importScripts = (...urls) => Promise.all(urls.map((url) => new Promise((done) => {" +
      "const script = document.createElement('script'); script.src = url; script.onload = done;" +
      "document.body.appendChild(script); })));" +
      `</script><script src="${url}"></script></body></html>`
    );
    page.close();
    this.ready = new Promise((done) => this.frame.contentWindow.addEventListener("load", done, { once: true }));
    window.addEventListener("message", (event) => {
      if (event.source !== this.frame.contentWindow && event.source !== window) return;
      const message = new MessageEvent("message", { data: event.data });
      this.dispatchEvent(message);
      this.onmessage?.(message);
    });
  }
  postMessage(data) {
    this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
  }
  terminate() {
    this.frame.remove();
  }
}
if (location.protocol === "file:") window.Worker = FrameWorker;

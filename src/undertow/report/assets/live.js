// On a server: ask whether there is something new, and load it.
function follow() {
  if (!PAGE.live) return;
  setInterval(async () => {
    try {
      const answer = await fetch(PAGE.live.url, { cache: "no-store" });
      if (answer.ok && (await answer.text()) !== PAGE.live.stamp) location.reload();
    } catch { /* the server has gone; the page stays as it is */ }
  }, 3000);
}

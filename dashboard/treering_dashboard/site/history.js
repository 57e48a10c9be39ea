// Streamlit pushes an entry into the browser's history for each value that a page writes into its address: a change of
// page took up to three of them, and Back then led to the same page. Here one act of a visitor makes one entry.
if (!window.treeringHistory) {
  const push = history.pushState.bind(history);
  let acted = false;
  const act = () => { acted = true; };
  for (const kind of ["pointerdown", "keydown", "click"]) addEventListener(kind, act, { capture: true, passive: true });
  addEventListener("popstate", () => { acted = false; }, { capture: true });
  history.pushState = (...entry) => {
    if (acted) push(...entry);
    else history.replaceState(...entry);
    acted = false;
  };
  window.treeringHistory = true;
}

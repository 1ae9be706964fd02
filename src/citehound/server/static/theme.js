// Runs before the first paint: a theme that was chosen stands against the system's.
try {
  const chosen = localStorage.getItem("citehound-theme");
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
} catch {
  // no storage: the system's theme
}

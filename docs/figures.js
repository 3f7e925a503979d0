// Draw the figures of a tutorial, which its page holds as JSON.
for (const place of document.querySelectorAll("[data-figure]")) {
  const figure = JSON.parse(place.dataset.figure);
  const layout = { ...figure.layout, autosize: true, width: undefined, height: undefined };
  Plotly.newPlot(place, figure.data, layout, { responsive: true, displayModeBar: false });
}

// Draw the charts of a claim's page, in the colours of the page.
(() => {
  const plots = [...document.querySelectorAll(".plot")];
  function layout(chart) {
    const style = getComputedStyle(document.body);
    const text = style.getPropertyValue("--md-default-fg-color--light") || "#555";
    const line = style.getPropertyValue("--md-default-fg-color--lightest") || "#ddd";
    const axis = (title, logarithmic) => ({
      title: { text: title }, type: logarithmic ? "log" : "linear", gridcolor: line, linecolor: line, zerolinecolor: line,
      exponentformat: "power", automargin: true,
    });
    return {
      paper_bgcolor: "transparent", plot_bgcolor: "transparent", font: { color: text, family: "inherit", size: 12 },
      xaxis: axis(chart.x, chart.logarithmic.x), yaxis: axis(chart.y, chart.logarithmic.y),
      legend: { orientation: "h", yref: "container", yanchor: "bottom", y: 0 }, margin: { t: 35, r: 10, b: 50, l: 60 }, hovermode: "closest",
    };
  }
  function draw() {
    for (const plot of plots) {
      const chart = JSON.parse(plot.querySelector("script").textContent);
      const traces = chart.traces.map(trace => ({ hovertemplate: `%{x}: %{y} ${trace.metric || ""}<extra>${trace.name}</extra>`, ...trace }));
      const place = plot.querySelector("div") || plot.appendChild(document.createElement("div"));
      place.style.height = "100%";
      Plotly.react(place, traces, layout(chart), { responsive: true, displaylogo: false });
    }
  }
  draw();
  new MutationObserver(draw).observe(document.body, { attributes: true, attributeFilter: ["data-md-color-scheme"] });
})();

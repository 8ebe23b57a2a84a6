"""Sources of samples: VictoriaMetrics, any Prometheus, recordings."""

"""What measures: benchmarks, equality of the engines, sanitizers, reproduction, time to target."""

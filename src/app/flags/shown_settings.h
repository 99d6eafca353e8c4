// What a run shows and records while it trains. Plain values, thus thread-safe.
#pragma once
#include <optional>
#include <string>

#include "base/types.h"

namespace spillway::app {

/// The value of --trace-steps: a trace is recorded of the steps first..last, both included. Steps are counted from 1.
struct StepRange {
  i64 first = 3, last = 6;
  bool operator==(const StepRange&) const = default;
};

struct ShownSettings {
  i64 log_every = 1;         // steps between progress lines
  i64 sample_every = 0;      // steps between samples of generated text; 0: no samples
  i64 histograms_every = 0;  // steps between histograms of the parameters; 0: no histograms
  std::string prompt;
  std::optional<std::string> trace;  // file that the trace is written to; empty: no trace
  StepRange trace_steps;
  bool profile = false, detect_anomaly = false;
  std::optional<i64> endurance_bytes;  // bytes that may be written to one drive over its life, as its maker rates it
  bool tensorboard = true, metrics_csv = false;
};

}  // namespace spillway::app

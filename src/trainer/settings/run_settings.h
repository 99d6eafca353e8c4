// RunSettings says what a run saves, shows and records while it trains. It only holds values, thus it is thread-safe.
#pragma once
#include <optional>
#include <string>

#include "trainer/settings/config.h"

namespace spillway::trainer {

struct RunSettings {
  Cadence checkpoint_every;
  bool no_final_checkpoint = false;
  i64 keep = 2;                     // number of newest complete checkpoints that stay
  std::optional<i64> time_limit_s;  // seconds that the run may take; empty: until the end of the Slurm job, if the run is part of one

  i64 log_every = 1;         // steps between progress lines
  i64 sample_every = 0;      // steps between samples of generated text; 0: no samples
  i64 histograms_every = 0;  // steps between histograms of the parameters; 0: no histograms
  std::string prompt;
  std::optional<std::string> trace;  // file that the trace is written to; empty: no trace
  StepRange trace_steps;
  bool profile = false, audit = false, detect_anomaly = false;
  std::optional<i64> endurance_bytes;  // bytes that may be written to one drive over its life, as its maker rates it
  bool tensorboard = true, metrics_csv = false;
};

}  // namespace spillway::trainer

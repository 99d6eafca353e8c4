// A training run of DeepSpeed's that goes on here (train --resume PATH): where it stood, its fp32 weights and the arrays of its optimizer
// (data/weights/zero_checkpoint.h). Of what a checkpoint of ours has it lacks the order of data, which is this program's own from the row
// on that DeepSpeed had reached, and checksums.
#pragma once
#include "app/checkpoints/checkpoint.h"
#include "data/weights/zero_checkpoint.h"

namespace spillway::app {

bool is_deepspeed_checkpoint(const std::filesystem::path& folder);

/// Error(data): as ZeroCheckpoint, and where nothing was trained yet.
Progress deepspeed_progress(const std::filesystem::path& checkpoint);

/// Fills weights and optimizer state; of a model with adapters, as PEFT names them, those: the base is `source`'s folder's. Error(data): a
/// parameter of the model is missing or has another shape, or there is a weight too many. Error(usage): the run's optimizer keeps other
/// arrays than DeepSpeed's.
void load_deepspeed(const std::filesystem::path& checkpoint, const ModelSource& source, const nn::Sequential& model, parallel::Rank& rank);

/// What it was saved by, for the log: "DeepSpeed 0.19.8, ZeRO-2 on 4 ranks, 1200 rows in 300 steps".
std::string deepspeed_text(const std::filesystem::path& checkpoint);

}  // namespace spillway::app

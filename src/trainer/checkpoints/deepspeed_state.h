// Resumes a DeepSpeed training run in this program (train --resume PATH) by reading its progress, its fp32 weights and its optimizer state
// (data/weights/zero_checkpoint.h). Unlike Spillway's checkpoints, those of DeepSpeed have no checksums and do not record the order of the
// data. From the row that DeepSpeed had reached, the run continues in Spillway's order of the rows.
#pragma once
#include "data/weights/zero_checkpoint.h"
#include "trainer/checkpoints/checkpoint.h"

namespace spillway::trainer {

bool is_deepspeed_checkpoint(const std::filesystem::path& folder);

/// Returns the progress of a DeepSpeed checkpoint. Throws Error(data) in the cases in
/// which the constructor of ZeroCheckpoint does, and if DeepSpeed had not taken any step.
Progress deepspeed_progress(const std::filesystem::path& checkpoint);

/// Loads weights and optimizer state into `rank`. For a model with adapters only the adapters, under PEFT's
/// names, come from the checkpoint; the base weights come from the folder of `source`. Throws Error(data)
/// if a parameter of the model is missing or has another shape, or if DeepSpeed trained a weight that the
/// model does not have. Throws Error(usage) if the run's optimizer has other state arrays than DeepSpeed's.
void load_deepspeed(const std::filesystem::path& checkpoint, const ModelSource& source, const nn::Sequential& model, parallel::Rank& rank);

/// Returns a description of the checkpoint for the log: "DeepSpeed 0.19.8, ZeRO-2 on 4 ranks, 1200 rows in 300 steps".
std::string deepspeed_text(const std::filesystem::path& checkpoint);

}  // namespace spillway::trainer

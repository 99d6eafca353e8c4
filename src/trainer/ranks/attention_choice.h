// Implements --attention cudnn, with which NVIDIA's cuDNN library computes attention. The
// functions check that a run may use cuDNN, and make all ranks use the same cuDNN engines.
#pragma once
#include <string>

#include "base/error.h"
#include "device/memory_pool.h"
#include "kernels/sequence/attention_library.h"
#include "trainer/ranks/device_choice.h"
#include "trainer/ranks/peers.h"
#include "trainer/settings/config.h"

namespace spillway::trainer {

/// Checks that cuDNN can compute the attention of a run that asks for it. Must be called after the device and the precision are resolved.
/// If cuDNN cannot, throws Error(usage), in one line that says what to change. `dropout` is the dropout rate of the attention
/// probabilities.
void check_attention(const ResourceConfig& config, const kernels::AttentionShape& shape, double dropout);

/// Returns `refused`, the error that no plan fits into memory, with
/// a line added that says how many bytes cuDNN's workspace takes.
Error with_attention_workspace(const Error& refused, const kernels::AttentionShape& shape);

/// Collective. Prepares cuDNN's execution plans on each rank's GPU, with the engines that `made_with` names. `made_with` is the
/// record of an earlier choice in a checkpoint; if it is empty, rank 0 chooses the engines. Returns the record of the choice,
/// which is stored with the run. Throws Error(usage) if a rank has another version of cuDNN or another kind of GPU than rank 0.
std::string prepare_attention(const kernels::AttentionShape& shape, const ChosenDevice& device, MemoryPool& pool, const Peers& peers,
                              const std::string& made_with);

}  // namespace spillway::trainer

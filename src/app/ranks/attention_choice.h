// --attention cudnn: what it is refused for, and how all ranks come to the same engines of cuDNN.
#pragma once
#include <string>

#include "app/flags/config.h"
#include "app/ranks/device_choice.h"
#include "app/ranks/peers.h"
#include "base/error.h"
#include "device/memory_pool.h"
#include "kernels/attention/attention_library.h"

namespace spillway::app {

/// Of a run that asks for cuDNN, when its device and precision are resolved. Error(usage) where there is none for it: in one line with the
/// cure. `dropout`: of probabilities.
void check_attention(const ResourceConfig& config, const kernels::AttentionShape& shape, double dropout);

/// Error(refused), that no plan fits, with what of it is cuDNN's workspace.
Error with_attention_workspace(const Error& refused, const kernels::AttentionShape& shape);

/// Of all ranks together: cuDNN's plans on each rank's GPU, by the engines that the first rank chose or that `made_with`, a checkpoint's
/// record, names. What they are, for the record of this run. Error(usage) where a rank has another version or GPU.
std::string prepare_attention(const kernels::AttentionShape& shape, const ChosenDevice& device, MemoryPool& pool, const Peers& peers,
                              const std::string& made_with);

}  // namespace spillway::app

// Looking at, or changing, what a block of a model reads and hands on, as PyTorch's register_forward_hook. Of a gradient: autograd/hook.h.
#pragma once
#include <functional>

#include "nn/module.h"

namespace spillway::nn {

/// Gets what the block read (undefined: the first block's) and what it gives, and returns what goes on: the output, or another of its
/// shape and dtype made of it. Called at every forward, on the meta device when a run is planned, and once more where a backward computes
/// forward again: it must give the same each time.
using ForwardHook = std::function<Variable(const Variable& input, const Variable& output, const Context& context)>;

/// The block, with `hook` behind its forward; of several the last one put there is called last:
///   model.blocks[1] = nn::with_hook(std::move(model.blocks[1]), hook);
/// Its forward throws Error(bug) when the hook returns another shape or dtype.
std::unique_ptr<Module> with_hook(std::unique_ptr<Module> block, ForwardHook hook);

}  // namespace spillway::nn

// Hooks that observe or change the input and output of a model's block, like PyTorch's register_forward_hook. For gradients see
// autograd/hook.h.
#pragma once
#include <functional>

#include "nn/module.h"

namespace spillway::nn {

/// A function that receives a block's input (undefined for the first block) and output, and returns the value to pass
/// on: the output or another variable of its shape and dtype computed from it. It is called at every forward, on the
/// meta device when a run is planned, and again when backward recomputes forward, so all calls must give equal results.
using ForwardHook = std::function<Variable(const Variable& input, const Variable& output, const Context& context)>;

/// Returns the block with `hook` called after its forward. If several hooks are added, the last one added is called last:
///   model.blocks[1] = nn::with_hook(std::move(model.blocks[1]), hook);
/// The forward of the returned block throws Error(bug) when the hook returns another shape or dtype.
std::unique_ptr<Module> with_hook(std::unique_ptr<Module> block, ForwardHook hook);

}  // namespace spillway::nn

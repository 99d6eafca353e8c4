// Implements --freeze, which names the parameters that are not trained.
#pragma once
#include <string>
#include <vector>

#include "nn/module.h"

namespace spillway::trainer {

/// Freezes the parameters that a pattern names. A pattern is a whole name ("transformer.wte.weight"), a module ("transformer.h.0") or a
/// shell glob over the whole name ("*.attn.*"). Throws Error(usage) if a pattern matches no parameter, or if all parameters are frozen.
void freeze_parameters(nn::Sequential& model, const std::vector<std::string>& patterns);

/// Returns the number of elements of the frozen parameters, counted as in Sequential::parameter_elems().
i64 frozen_elems(const nn::Sequential& model);

}  // namespace spillway::trainer

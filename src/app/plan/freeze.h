// --freeze: which parameters are not trained.
#pragma once
#include <string>
#include <vector>

#include "nn/module.h"

namespace spillway::app {

/// Marks the parameters that a pattern names: whole ("transformer.wte.weight"), by module ("transformer.h.0"), or as a shell glob over the
/// whole name ("*.attn.*"). Errors: Error(usage) for a pattern that names none, or when nothing is left to train.
void freeze_parameters(nn::Sequential& model, const std::vector<std::string>& patterns);

/// Elements of frozen parameters, as Sequential::parameter_elems() counts them.
i64 frozen_elems(const nn::Sequential& model);

}  // namespace spillway::app

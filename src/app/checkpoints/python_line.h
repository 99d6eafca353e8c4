// The line of Python that loads a checkpoint or an exported folder. A pure function.
#pragma once
#include <filesystem>
#include <string>

#include "models/config.h"

namespace spillway::app {

/// By transformers, and of `adapter` by PEFT with its base; empty for a model that reads images, which they do not know. Of `format`
/// "onnx" by onnxruntime.
std::string python_line(const models::ModelConfig& config, bool adapter, const std::string& format, const std::filesystem::path& folder);

}  // namespace spillway::app

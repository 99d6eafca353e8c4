// Builds the line of Python that loads a checkpoint or an exported folder. The function is pure.
#pragma once
#include <filesystem>
#include <string>

#include "models/config.h"

namespace spillway::trainer {

/// Returns a line of Python that loads the folder with transformers, or with PEFT if it holds an `adapter`, or with onnxruntime
/// if `format` is "onnx". The result is empty for image models in the Hugging Face format, which transformers cannot load.
std::string python_line(const models::ModelConfig& config, bool adapter, const std::string& format, const std::filesystem::path& folder);

}  // namespace spillway::trainer

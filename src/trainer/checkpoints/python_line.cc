#include "trainer/checkpoints/python_line.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace spillway::trainer {

namespace {

std::string in_python(const std::filesystem::path& path) {
  const nlohmann::json text = std::filesystem::absolute(path).string();  // a JSON string is also a valid Python string
  return text.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

std::string python_line(const models::ModelConfig& config, bool adapter, const std::string& format, const std::filesystem::path& folder) {
  if (format == "onnx")
    return fmt::format("import onnxruntime; session = onnxruntime.InferenceSession({})", in_python(folder / "model.onnx"));
  if (config.reads_images()) return "";
  return fmt::format("import {0}; model = {0}.{1}.from_pretrained({2})", adapter ? "peft" : "transformers",
                     adapter ? "AutoPeftModelForCausalLM" : "AutoModelForCausalLM", in_python(folder));
}

}  // namespace spillway::trainer

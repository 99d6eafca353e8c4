#include "app/checkpoints/python_line.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace spillway::app {

std::string python_line(const models::ModelConfig& config, bool adapter, const std::filesystem::path& folder) {
  if (config.reads_images()) return "";
  const nlohmann::json path = std::filesystem::absolute(folder).string();  // JSON's strings are Python's
  return fmt::format("import {0}; model = {0}.{1}.from_pretrained({2})", adapter ? "peft" : "transformers",
                     adapter ? "AutoPeftModelForCausalLM" : "AutoModelForCausalLM",
                     path.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace spillway::app

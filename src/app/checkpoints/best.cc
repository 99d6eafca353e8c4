#include "app/checkpoints/best.h"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "app/checkpoints/checkpoint.h"
#include "base/error.h"
#include "data/file.h"

namespace spillway::app {
namespace {

namespace fs = std::filesystem;

fs::path best_file(const fs::path& run) { return run / "best.json"; }

}  // namespace

std::optional<Best> read_best(const fs::path& run) {
  std::ifstream in(best_file(run));
  if (!in) return {};
  const auto all = nlohmann::json::parse(in, nullptr, false);
  const bool whole = all.is_object() && all.contains("step") && all["step"].is_number_integer() && all.contains("validation_loss") &&
                     all["validation_loss"].is_number();
  if (!whole) {
    throw Error(ErrorCode::data, fmt::format("[best] {}: expected an object with step and validation_loss: remove it, and the next "
                                             "validation is the best",
                                             best_file(run).string()));
  }
  const Best best{all["step"], all["validation_loss"]};
  return fs::exists(checkpoint_path(run, best.step)) ? std::optional(best) : std::nullopt;
}

void write_best(const fs::path& run, const Best& best) {
  data::replace_text(best_file(run), nlohmann::ordered_json{{"step", best.step}, {"validation_loss", best.loss}}.dump() + "\n");
}

}  // namespace spillway::app

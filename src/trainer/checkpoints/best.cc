#include "trainer/checkpoints/best.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "data/files/file.h"
#include "trainer/checkpoints/checkpoint.h"
#include "trainer/node/host.h"

namespace spillway::trainer {
namespace {

namespace fs = std::filesystem;

constexpr std::streamsize kMostBytes = 4 * kKiB;
constexpr i64 kMostSteps = 1'000'000'000'000'000;

fs::path best_file(const fs::path& run) { return run / "best.json"; }

// Parses the text of best.json. Returns nothing if the text is not what write_best() writes.
std::optional<Best> parse_best(const std::string& text) {
  if (std::ssize(text) > kMostBytes) return {};
  const auto all = parse_json(text);
  if (!all.is_object() || !all.contains("step") || !all["step"].is_number_integer() || !all.contains("validation_loss") ||
      !all["validation_loss"].is_number())
    return {};
  const Best best{all["step"].get<i64>(), all["validation_loss"].get<double>()};
  return is_possible(best) ? std::optional(best) : std::nullopt;
}

}  // namespace

bool is_possible(const Best& best) { return best.step >= 1 && best.step <= kMostSteps && std::isfinite(best.loss); }

std::optional<Best> read_best(const fs::path& run) {
  std::error_code unseen;
  if (!fs::exists(best_file(run), unseen)) return {};
  const std::optional<Best> best = parse_best(read_whole(best_file(run)).value_or(""));
  if (!best) {
    throw Error(ErrorCode::data, fmt::format("[best] {}: expected a JSON object with step (1 or more) and validation_loss (finite); "
                                             "remove the file, and the next validation counts as the best",
                                             best_file(run).string()));
  }
  return fs::exists(checkpoint_path(run, best->step)) ? best : std::nullopt;
}

void write_best(const fs::path& run, const Best& best) {
  data::replace_text(best_file(run), nlohmann::ordered_json{{"step", best.step}, {"validation_loss", best.loss}}.dump() + "\n");
}

}  // namespace spillway::trainer

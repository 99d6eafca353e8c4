#include "trainer/settings/weighted_path.h"

#include <charconv>
#include <cmath>
#include <filesystem>
#include <optional>

#include "trainer/settings/text.h"

namespace spillway::trainer {
namespace {

namespace fs = std::filesystem;

bool is_there(const std::string& path) {
  std::error_code none;
  return fs::exists(path, none);
}

// Returns the position of the last colon if `word` has the form PATH:WEIGHT: a number must follow the colon, or an existing path must
// precede it.
std::optional<size_t> colon_of(const std::string& word) {
  const size_t colon = word.rfind(':');
  if (colon == std::string::npos || colon == 0 || is_there(word)) return std::nullopt;
  double ignored = 0;
  const char *begin = word.data() + colon + 1, *end = word.data() + word.size();
  const bool number = begin != end && std::from_chars(begin, end, ignored).ptr == end;
  return number || is_there(word.substr(0, colon)) ? std::optional(colon) : std::nullopt;
}

double weight_of(const std::string& text, const std::string& word) {
  double weight = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), weight);
  if (error != std::errc() || end != text.data() + text.size() || !(weight > 0) || !std::isfinite(weight))
    refuse("[--data] expected PATH:WEIGHT with a number above 0, such as a.jsonl:0.7, got " + word);
  return weight;
}

}  // namespace

WeightedPaths weighted_paths(const std::vector<std::string>& words) {
  WeightedPaths all;
  for (const std::string& word : words) {
    const auto colon = colon_of(word);
    all.paths.push_back(word.substr(0, colon.value_or(word.size())));
    if (colon) all.weights.push_back(weight_of(word.substr(*colon + 1), word));
  }
  if (!all.weights.empty() && all.weights.size() < all.paths.size())
    refuse("[--data] expected a weight for each source or for none, got " + std::to_string(all.weights.size()) + " weights for " +
           std::to_string(all.paths.size()) + " sources: write PATH:WEIGHT for all");
  return all;
}

}  // namespace spillway::trainer

#include "trainer/checkpoints/mixture_json.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace spillway::trainer {

void put_mixture(nlohmann::json& to, const std::optional<data::MixtureStart>& mixture) {
  if (!mixture) return;
  to["mixture"] = {{"at", mixture->at}, {"weights", mixture->weights}, {"rows", mixture->rows}, {"orders", mixture->orders}};
}

std::optional<data::MixtureStart> mixture_of(const nlohmann::json& from) {
  if (!from.contains("mixture")) return {};
  constexpr i64 kMost = i64{1} << 62;
  const auto bad = [] {
    return Error(ErrorCode::data,
                 "[checkpoint] expected `mixture` in the manifest to hold the position in each data source, got something else");
  };
  data::MixtureStart found;
  try {
    const nlohmann::json& json = from["mixture"];
    found.at = json.at("at").get<i64>();
    found.weights = json.at("weights").get<std::vector<double>>();
    found.rows = json.at("rows").get<std::vector<i64>>();
    found.orders = json.at("orders").get<std::vector<u64>>();
  } catch (const nlohmann::json::exception&) {
    throw bad();
  }
  const bool sizes = !found.weights.empty() && found.rows.size() == found.weights.size() && found.orders.size() == found.weights.size();
  const bool values = found.at >= 0 && found.at < kMost &&
                      std::ranges::all_of(found.weights, [](double w) { return w > 0 && std::isfinite(w); }) &&
                      std::ranges::all_of(found.rows, [](i64 rows) { return rows >= 0 && rows < kMost; });
  if (!sizes || !values) throw bad();
  return found;
}

}  // namespace spillway::trainer

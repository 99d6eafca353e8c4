#include "trainer/checkpoints/standing.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace spillway::trainer {
namespace {

using Json = nlohmann::json;

i64 count_of(const Json& from, const char* key) {
  const auto found = from.find(key);
  return found != from.end() && found->is_number_integer() ? std::max<i64>(0, found->get<i64>()) : 0;
}

bool flag_of(const Json& from, const char* key) {
  const auto found = from.find(key);
  return found != from.end() && found->is_boolean() && found->get<bool>();
}

}  // namespace

bool Standing::judge(i64 step, double loss) {
  const bool is_best = std::isfinite(loss) && (!best || loss < best->loss);
  no_better = is_best ? 0 : no_better + 1;
  if (is_best) best = Best{step, loss};
  return is_best;
}

bool Standing::validates_on(const std::string& data) {
  const bool others = !validated_on.empty() && validated_on != data && (best || no_better > 0);
  if (others) best.reset(), no_better = 0;
  validated_on = data;
  return others;
}

Json to_json(const Standing& s) {
  Json to = Json::object();
  if (s.best) to["best_step"] = s.best->step, to["best_loss"] = s.best->loss;
  if (s.no_better > 0) to["no_better"] = s.no_better;
  if (!s.validated_on.empty()) to["validated_on"] = s.validated_on;
  if (s.owes_validation) to["owes_validation"] = true;
  if (s.skipped_in_a_row > 0) to["skipped_in_a_row"] = s.skipped_in_a_row;
  if (s.unsound) to["unsound"] = true;
  if (s.diverged) to["diverged"] = true;
  return to;
}

Standing standing_of(const Json& from) {
  Standing s;
  if (!from.is_object()) return s;
  const auto loss = from.find("best_loss"), data = from.find("validated_on");
  if (const Best best{count_of(from, "best_step"), loss != from.end() && loss->is_number() ? loss->get<double>() : NAN}; is_possible(best))
    s.best = best;
  s.no_better = count_of(from, "no_better");
  if (data != from.end() && data->is_string()) s.validated_on = data->get<std::string>();
  s.owes_validation = flag_of(from, "owes_validation");
  s.skipped_in_a_row = count_of(from, "skipped_in_a_row");
  s.unsound = flag_of(from, "unsound");
  s.diverged = flag_of(from, "diverged");
  return s;
}

}  // namespace spillway::trainer

#include "trainer/checkpoints/thaw.h"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <utility>

namespace spillway::trainer {

namespace {

std::string shown(const std::vector<std::string>& names) {
  return names.size() == 1 ? names.front() : fmt::format("{} and {} more", names.front(), names.size() - 1);
}

}  // namespace

std::vector<std::string> notes_of(const FreezeChange& change) {
  std::vector<std::string> notes;
  if (!change.thawed.empty())
    notes.push_back(fmt::format("{}: trained from here on, with new optimizer state and bias corrections that start at the first update",
                                shown(change.thawed)));
  if (!change.frozen.empty()) notes.push_back(shown(change.frozen) + ": frozen from here on, so the optimizer state is dropped");
  return notes;
}

nlohmann::json to_json(const std::vector<Thaw>& thawed) {
  nlohmann::json all = nlohmann::json::array();
  for (const Thaw& thaw : thawed) all.push_back({{"updates", thaw.updates}, {"parameters", thaw.parameters}});
  return all;
}

std::vector<Thaw> thawed_of(const nlohmann::json& json) try {
  std::vector<Thaw> all;
  for (const nlohmann::json& thaw : json)
    all.push_back({thaw.at("updates").get<i64>(), thaw.at("parameters").get<std::vector<std::string>>()});
  return all;
} catch (const nlohmann::json::exception&) {
  return {};
}

void count_own_updates(parallel::Update& update, const std::vector<Thaw>& thawed, const nn::Sequential& model) {
  std::map<std::string, i64> before;
  for (const Thaw& thaw : thawed) {
    for (const std::string& name : thaw.parameters) before[name] = thaw.updates;
  }
  if (before.empty()) return;
  update.own_rates_of.resize(model.parameters.size(), 0);
  std::map<std::pair<u16, i64>, u16> made;  // index of the OwnRates; key: optimizer group, updates before the thaw
  for (size_t p = 0; p < model.parameters.size(); ++p) {
    const auto found = before.find(model.parameters[p]->name);
    if (found == before.end()) continue;
    const u16 group = update.own_rates_of[p];
    const auto [rates, fresh] = made.try_emplace({group, found->second}, static_cast<u16>(update.own_rates.size() + 1));
    if (fresh) {
      parallel::OwnRates own = group > 0 ? update.own_rates[group - 1u] : parallel::OwnRates{.learning_rate = update.learning_rate};
      own.updates_before = found->second;
      update.own_rates.push_back(own);
    }
    update.own_rates_of[p] = rates->second;
  }
}

}  // namespace spillway::trainer

#include <algorithm>
#include <utility>

#include "base/units.h"
#include "trainer/settings/placement_settings.h"
#include "trainer/settings/suggest.h"
#include "trainer/settings/text.h"

namespace spillway::trainer {
namespace {

constexpr const char* kWanted =
    "device, host, nvme, auto, or bytes per tier of which exactly one takes the rest, such as device=2GiB,host=rest";

std::optional<Tier> find_tier(std::string_view name) {
  for (const Tier tier : {Tier::device, Tier::host, Tier::nvme}) {
    if (name == offload::to_string(tier)) return tier;
  }
  return std::nullopt;
}

[[noreturn]] void reject(const Value& value, const std::string& what) {
  const auto* text = value.as<std::string>();
  refuse("[" + what + "] expected " + kWanted + ", got " + shown(value) +
         (text ? value_hint("place", {"device", "host", "nvme", "auto"}, *text) : ""));
}

// Splits a text such as "device=2GiB,host=rest" into what each tier takes.
Value::Mapping shares_of(const std::string& text, const std::string& what) {
  Value::Mapping shares;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string share = text.substr(begin, end - begin);
    begin = end + 1;
    const size_t equals = share.find('=');
    if (equals == share.npos) reject(text, what);
    shares.emplace_back(share.substr(0, equals), share.substr(equals + 1));
  }
  return shares;
}

}  // namespace

PlacementWish PlacementWish::whole(Tier tier) {
  PlacementWish wish{.automatic = false};
  wish.bytes[static_cast<size_t>(tier)] = kRest;
  return wish;
}

std::optional<Tier> PlacementWish::one_tier() const {
  for (const Tier tier : {Tier::device, Tier::host, Tier::nvme}) {
    if (*this == whole(tier)) return tier;
  }
  return std::nullopt;
}

PlacementWish parse_placement(const Value& value, const std::string& what) {
  const auto* text = value.as<std::string>();
  if (text && *text == "auto") return {};
  if (const auto tier = text ? find_tier(*text) : std::nullopt) return PlacementWish::whole(*tier);
  const auto* mapping = value.as<Value::Mapping>();
  if (!text && !mapping) reject_kind(value, kWanted, what);
  PlacementWish wish{.automatic = false};
  std::array<bool, offload::kTiers> seen{};
  for (const auto& [name, amount] : text ? shares_of(*text, what) : *mapping) {
    const auto tier = find_tier(name);
    if (!tier || std::exchange(seen[static_cast<size_t>(*tier)], true)) reject(value, what);
    wish.bytes[static_cast<size_t>(*tier)] = amount == Value("rest") ? PlacementWish::kRest : read_size(amount, what);
  }
  if (std::ranges::count(wish.bytes, PlacementWish::kRest) != 1) reject(value, what);
  return wish;
}

std::string print_placement(const PlacementWish& wish) {
  if (wish.automatic) return "auto";
  if (const auto tier = wish.one_tier()) return std::string(offload::to_string(*tier));
  std::string text;
  for (const Tier tier : {Tier::device, Tier::host, Tier::nvme}) {
    const i64 bytes = wish.bytes[static_cast<size_t>(tier)];
    if (bytes == 0) continue;
    if (!text.empty()) text += ',';
    text += std::string(offload::to_string(tier)) + "=" + (bytes == PlacementWish::kRest ? "rest" : print_size(bytes));
  }
  return text;
}

}  // namespace spillway::trainer

#include "app/text/sampling.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/random.h"

namespace spillway::app {
namespace {

using Ranked = std::vector<std::pair<double, i32>>;

Ranked penalized(std::span<const double> logits, std::span<const i32> seen, double penalty) {
  Ranked all;
  all.reserve(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) all.emplace_back(logits[i], static_cast<i32>(i));
  if (penalty == 1) return all;
  for (const i32 id : std::set<i32>(seen.begin(), seen.end())) {
    double& logit = all[static_cast<size_t>(id)].first;
    logit = logit < 0 ? logit * penalty : logit / penalty;
  }
  return all;
}

}  // namespace

std::vector<std::pair<double, i32>> distribution(std::span<const double> logits, std::span<const i32> seen, const Sampling& s) {
  if (s.temperature == 0 && s.repetition_penalty == 1) return {{1, static_cast<i32>(std::ranges::max_element(logits) - logits.begin())}};
  Ranked ranked = penalized(logits, seen, s.repetition_penalty);
  const auto likelier = [](const auto& a, const auto& b) { return a.first > b.first; };
  if (s.temperature == 0) return {{1, std::ranges::min_element(ranked, likelier)->second}};
  if (s.top_k > 0 && s.top_k < std::ssize(ranked)) {  // and what is as likely as the last of them
    Ranked parted = ranked;
    const auto last = parted.begin() + s.top_k - 1;
    std::nth_element(parted.begin(), last, parted.end(), likelier);
    std::erase_if(ranked, [least = last->first](const auto& r) { return r.first < least; });
  }
  std::ranges::stable_sort(ranked, likelier);
  const double top = ranked.front().first;
  double total = 0;
  for (auto& [weight, id] : ranked) total += weight = std::exp((weight - top) / s.temperature);
  double held = 0;
  size_t kept = 0;
  while (kept < ranked.size() && (kept == 0 || held < s.top_p * total)) held += ranked[kept++].first;
  while (kept > 1 && ranked[kept - 1].first < s.min_p) held -= ranked[--kept].first;  // the likeliest one's weight is 1
  ranked.resize(kept);
  held = 0;
  for (const auto& r : ranked) held += r.first;
  for (auto& r : ranked) r.first /= held;
  return ranked;
}

i32 sample_token(std::span<const double> logits, std::span<const i32> seen, const Sampling& s, i64 position) {
  const Ranked list = distribution(logits, seen, s);
  double left = uniform(RandomKey{s.seed}.derive("sample"), 0, static_cast<u64>(position));
  for (const auto& [share, id] : list) {
    left -= share;
    if (left < 0) return id;
  }
  return list.back().second;
}

StopText::StopText(std::vector<std::string> stops) : stops_(std::move(stops)) { std::erase(stops_, ""); }

std::string StopText::put(const std::string& piece) {
  if (stopped_) return "";
  held_ += piece;
  size_t end = std::string::npos;
  for (const std::string& stop : stops_) end = std::min(end, held_.find(stop));
  if (end != std::string::npos) {
    stopped_ = true;
    held_.resize(end);
    return std::exchange(held_, {});
  }
  // The longest end of it with which a stop begins.
  size_t kept = 0;
  for (const std::string& stop : stops_) {
    for (size_t n = std::min(stop.size() - 1, held_.size()); n > kept; --n) {
      if (held_.ends_with(std::string_view(stop).substr(0, n))) kept = n;
    }
  }
  const std::string out = held_.substr(0, held_.size() - kept);
  held_.erase(0, out.size());
  return out;
}

std::string StopText::finish() { return std::exchange(held_, {}); }

}  // namespace spillway::app

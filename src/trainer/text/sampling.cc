#include "trainer/text/sampling.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/random.h"

namespace spillway::trainer {
namespace {

// Ranking holds tokens sorted by their logits: the most likely first, and of two with
// equal logits the one with the lower id first. Only the part that is read gets sorted.
class Ranking {
 public:
  struct Token {
    double logit;
    i32 id;
  };
  Ranking(std::span<const double> logits, std::span<const i32> seen, double penalty) {
    all_.reserve(logits.size());
    // A NaN logit is replaced by minus infinity, because NaNs cannot be sorted. Its token is then never likely.
    for (const double x : logits) all_.push_back({std::isnan(x) ? -INFINITY : x, static_cast<i32>(all_.size())});
    if (penalty == 1) return;
    for (const i32 id : std::set<i32>(seen.begin(), seen.end())) {
      double& logit = all_[static_cast<size_t>(id)].logit;
      logit = logit < 0 ? logit * penalty : logit / penalty;
    }
  }

  size_t size() const { return all_.size(); }
  std::span<const Token> unordered() const { return all_; }
  const Token& operator[](size_t i) {
    if (i >= ordered_) put_in_order(i + 1);
    return all_[i];
  }
  /// Removes all tokens except the first `count` and those that are exactly as likely as the last of the first `count`.
  void keep(size_t count) {
    const double least = (*this)[count - 1].logit;
    std::erase_if(all_, [least](const Token& t) { return t.logit < least; });
  }

 private:
  static constexpr size_t kFirst = 256;
  void put_in_order(size_t least) {
    const auto likelier = [](const Token& a, const Token& b) { return a.logit > b.logit || (a.logit == b.logit && a.id < b.id); };
    const size_t end = std::min(all_.size(), std::max({kFirst, least, 4 * ordered_}));
    const auto from = all_.begin() + static_cast<std::ptrdiff_t>(ordered_), to = all_.begin() + static_cast<std::ptrdiff_t>(end);
    if (to != all_.end()) std::nth_element(from, to, all_.end(), likelier);
    std::sort(from, to, likelier);
    ordered_ = end;
  }

  std::vector<Token> all_;
  size_t ordered_ = 0;
};

i32 likeliest(std::span<const double> logits, std::span<const i32> seen, double penalty) {
  if (penalty == 1) return static_cast<i32>(std::ranges::max_element(logits) - logits.begin());
  return std::ranges::max_element(Ranking(logits, seen, penalty).unordered(), {}, &Ranking::Token::logit)->id;
}

// The tokens that may be sampled: the first `count` of the ranking. The probability of each is weight() / held.
struct Kept {
  Ranking ranking;
  double top, temperature;
  size_t count = 0;
  double held = 0;
  double weight(const Ranking::Token& t) const { return std::exp((t.logit - top) / temperature); }
};

Kept kept_of(std::span<const double> logits, std::span<const i32> seen, const Sampling& s) {
  Kept kept{Ranking(logits, seen, s.repetition_penalty), 0, s.temperature};
  Ranking& ranking = kept.ranking;
  kept.top = ranking[0].logit;
  if (s.top_k > 0 && s.top_k < std::ssize(logits)) ranking.keep(static_cast<size_t>(s.top_k));
  double total = 0;
  for (const Ranking::Token& t : ranking.unordered()) total += kept.weight(t);
  if (s.top_p >= 1 && s.min_p <= 0) {
    kept.count = ranking.size(), kept.held = total;
    return kept;
  }
  for (; kept.count < ranking.size(); ++kept.count) {
    const double weight = kept.weight(ranking[kept.count]);  // weights are relative to that of the most likely token, which is 1
    if (kept.count > 0 && ((s.top_p < 1 && kept.held >= s.top_p * total) || weight < s.min_p)) break;
    kept.held += weight;
  }
  return kept;
}

}  // namespace

std::vector<std::pair<double, i32>> distribution(std::span<const double> logits, std::span<const i32> seen, const Sampling& s) {
  if (s.temperature == 0) return {{1, likeliest(logits, seen, s.repetition_penalty)}};
  Kept kept = kept_of(logits, seen, s);
  std::vector<std::pair<double, i32>> shares;
  for (size_t i = 0; i < kept.count; ++i) {
    const Ranking::Token& token = kept.ranking[i];
    shares.emplace_back(kept.weight(token) / kept.held, token.id);
  }
  return shares;
}

i32 sample_token(std::span<const double> logits, std::span<const i32> seen, const Sampling& s, i64 position) {
  if (s.temperature == 0) return likeliest(logits, seen, s.repetition_penalty);
  Kept kept = kept_of(logits, seen, s);
  double left = uniform(RandomKey{s.seed}.derive("sample"), 0, static_cast<u64>(position));
  for (size_t i = 0; i < kept.count; ++i) {
    const Ranking::Token& token = kept.ranking[i];
    left -= kept.weight(token) / kept.held;
    if (left < 0) return token.id;
  }
  return kept.ranking[kept.count - 1].id;
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
  // If the text ends with the beginning of a stop text, this part is not output yet. If several beginnings of stop texts match, the longest
  // counts.
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

}  // namespace spillway::trainer

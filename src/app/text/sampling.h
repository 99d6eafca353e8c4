// The next token from a model's logits, and where a text ends. Pure, but for StopText, which is used by one thread.
#pragma once
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/types.h"

namespace spillway::app {

/// In the order of transformers' generate(): repetition penalty (Keskar et al., arXiv:1909.05858), temperature, top-k, top-p (Holtzman et
/// al., arXiv:1904.09751), min-p (Nguyen et al., arXiv:2407.01082).
struct Sampling {
  double temperature = 0.8;       // 0: the likeliest token
  i64 top_k = 0;                  // 0: all
  double top_p = 1;               // the likeliest tokens up to the one with which they hold this share
  double min_p = 0;               // and at least this share of the likeliest one's probability
  double repetition_penalty = 1;  // logits of tokens that are there already: those above 0 divided by it, others times it
  u64 seed = 1337;
};

/// Probabilities that add up to 1 with their ids, the likeliest first, of equal ones the lower id; what is not listed has none. `seen`: the
/// tokens so far. At temperature 0 the likeliest alone.
std::vector<std::pair<double, i32>> distribution(std::span<const double> logits, std::span<const i32> seen, const Sampling& sampling);

/// The `position`-th token.
i32 sample_token(std::span<const double> logits, std::span<const i32> seen, const Sampling& sampling, i64 position);

/// Text on its way out, held back as long as it may be the beginning of a text that ends it.
class StopText {
 public:
  explicit StopText(std::vector<std::string> stops);
  /// What of it may go out now: up to the first of the stops, which is not given.
  std::string put(const std::string& piece);
  bool stopped() const { return stopped_; }
  /// The rest, once nothing follows.
  std::string finish();

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace spillway::app

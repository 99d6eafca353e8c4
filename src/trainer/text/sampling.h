// Samples the next token from a model's logits, and finds where a text ends. All functions are pure; StopText is not thread-safe.
#pragma once
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/types.h"

namespace spillway::trainer {

/// Sampling holds the settings of sampling. They are applied in the order of transformers' generate(): repetition penalty (Keskar et
/// al., arXiv:1909.05858), temperature, top-k, top-p (Holtzman et al., arXiv:1904.09751), min-p (Nguyen et al., arXiv:2407.01082).
struct Sampling {
  double temperature = 0.8;       // divides the logits; 0: the most likely token is always chosen
  i64 top_k = 0;                  // number of most likely tokens to choose from; 0: all
  double top_p = 1;               // choose from the fewest most likely tokens whose probabilities sum to at least top_p
  double min_p = 0;               // choose from tokens with at least this share of the highest probability
  double repetition_penalty = 1;  // divides positive logits of tokens that occurred already, multiplies negative ones
  u64 seed = 1337;
};

/// Returns the tokens that may be sampled, as pairs of probability and id. The probabilities add up to 1.
/// The most likely token comes first; of two equally likely tokens the one with the lower id does. `seen`
/// holds the tokens of the text so far. At temperature 0 the result has only the most likely token.
std::vector<std::pair<double, i32>> distribution(std::span<const double> logits, std::span<const i32> seen, const Sampling& sampling);

/// Samples a token. `position` is the index of the new token among the generated ones, from 0. The random number depends only on the seed
/// and `position`.
i32 sample_token(std::span<const double> logits, std::span<const i32> seen, const Sampling& sampling, i64 position);

/// StopText ends an output text before the first stop text that occurs in it. Output that
/// may be the beginning of a stop text is kept back until more text shows whether it is one.
class StopText {
 public:
  explicit StopText(std::vector<std::string> stops);
  /// Appends a piece of text and returns the text that can be output now. Once a stop text has occurred, all results are empty.
  std::string put(const std::string& piece);
  bool stopped() const { return stopped_; }
  /// Returns the text that was still kept back. Must be called when no more text follows.
  std::string finish();

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace spillway::trainer

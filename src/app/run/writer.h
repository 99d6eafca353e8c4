// A language model that writes: what generate and chat share. All ranks compute the same tokens, each with its part of the weights.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "app/run/inference.h"
#include "app/text/generation.h"
#include "data/tokenizer/tokenizer.h"

namespace spillway::app {

struct Answer {
  std::string text;
  std::vector<i32> tokens;
};

class Writer {
 public:
  /// Finds the model and its tokenizer. Error(usage): it has no weights, no tokenizer though it has weights of others, or reads images.
  Writer(Command command, const WritingConfig& config, const Peers& peers);

  const data::Tokenizer& tokenizer() const { return *tokenizer_; }
  const std::shared_ptr<const data::Tokenizer>& shared_tokenizer() const { return tokenizer_; }
  const ModelSource& source() const { return model_.source(); }

  /// Plans for so many rows, takes the memory and loads the weights, all ranks together. `settings`: the command's.
  void open(const Settings& settings, Facts facts, i64 rows, const TextLengths& lengths, Console& console);

  /// What follows each prompt: at most --max-tokens, up to what ends a text, which is no part of it. `put` sees the pieces as they come.
  /// `first`: the number of the first prompt among all, each of which has a seed of its own.
  std::vector<Answer> write(const std::vector<std::vector<i32>>& prompts, i64 first,
                            const std::function<void(size_t row, const std::string& piece)>& put);

 private:
  std::vector<i64> end_tokens() const;
  bool ends(i32 id) const;

  const WritingConfig& config_;
  Inference model_;
  std::shared_ptr<const data::Tokenizer> tokenizer_;
  std::vector<i64> ends_;  // the tokens that end a text
};

}  // namespace spillway::app

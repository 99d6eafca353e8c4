// Writer generates text with a language model. The commands generate and chat
// use it. All ranks compute the same tokens, each with its part of the weights.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "data/tokenizer/tokenizer.h"
#include "trainer/run/inference.h"
#include "trainer/text/generation.h"

namespace spillway::trainer {

struct Answer {
  std::string text;
  std::vector<i32> tokens;
};

class Writer {
 public:
  /// Finds the model and its tokenizer. Throws Error(usage) if the model reads images or has
  /// no weights. Also throws if another program trained the model and no tokenizer is found.
  Writer(Command command, const WritingConfig& config, const Peers& peers);

  const data::Tokenizer& tokenizer() const { return *tokenizer_; }
  const std::shared_ptr<const data::Tokenizer>& shared_tokenizer() const { return tokenizer_; }
  const ModelSource& source() const { return model_.source(); }

  /// Collective. Plans for `rows` concurrent texts, allocates the memory
  /// and loads the weights. `settings` are the command's options.
  void open(const Settings& settings, Facts facts, i64 rows, const TextLengths& lengths, Messages& messages);

  /// Continues each prompt by at most --max-tokens tokens. A continuation ends earlier at an end token or at a text of
  /// --stop, which the answer does not include. `put` is called with each piece of text as it is generated. `first` is
  /// the index of the first prompt among all prompts of the command. A prompt's seed is --seed plus its index.
  std::vector<Answer> write(const std::vector<std::vector<i32>>& prompts, i64 first,
                            const std::function<void(size_t row, const std::string& piece)>& put);

 private:
  std::vector<i64> end_tokens() const;
  bool ends(i32 id) const;

  const WritingConfig& config_;
  Inference model_;
  std::shared_ptr<const data::Tokenizer> tokenizer_;
  std::vector<i64> ends_;  // ids of the tokens that end a text
};

}  // namespace spillway::trainer

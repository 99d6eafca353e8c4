// Turns prompts into the tokens that the model continues. Plain prompts are tokenized as they are; conversations are first rendered with
// the model's chat template.
#pragma once
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "data/rows/row.h"
#include "data/template/chat_template.h"
#include "data/tokenizer/tokenizer.h"
#include "trainer/checkpoints/model_source.h"
#include "trainer/settings/config.h"

namespace spillway::trainer {

/// Conversations renders conversations in the format that the model was trained on. All methods are const and thread-safe.
class Conversations {
 public:
  /// Uses the template of --chat-template (a file or a name), or without the flag the template in the tokenizer's
  /// folder. Throws Error(usage) if there is no template, and Error(data) if the template cannot be read.
  Conversations(const WritingConfig& config, const ModelSource& source, std::shared_ptr<const data::Tokenizer> tokenizer);
  /// Returns the tokens of a conversation up to the point where the model's answer begins. A row of data may set template variables (tools,
  /// documents, …); a plain array of `messages` sets none. Throws Error(data) if the template refuses the conversation.
  std::vector<i32> tokens(const nlohmann::ordered_json& messages) const;
  std::vector<i32> tokens(const data::Row& row) const;

 private:
  std::shared_ptr<const data::Tokenizer> tokenizer_;
  std::shared_ptr<const data::ChatTemplate> template_;
  std::shared_ptr<const nlohmann::ordered_json> variables_;
};

struct Prompt {
  std::string text;  // the prompt as given, or its messages as JSON
  std::vector<i32> tokens;
};

struct PromptFile {
  std::vector<Prompt> prompts;
  std::vector<std::string> notes;  // one line for each key of the rows that this program does not read
};

/// Reads a file of prompts and tokenizes each as `tokenizer(text)` of transformers does (data::encode_with_around). The
/// file may be compressed with gzip or zstd. A plain file has one prompt per line. A .jsonl file has one {"prompt": TEXT}
/// or {"messages": […]} per line; rows with messages may have `tools`, `documents` and `chat_template_kwargs`, as in
/// training. Throws Error(data) for a bad row, which the message names by its line, and for a file without prompts. Throws
/// Error(usage) for an empty prompt, for messages without a chat template, and for tokens that are not in the vocabulary.
PromptFile read_prompts(const std::string& path, const WritingConfig& config, const ModelSource& source,
                        const std::shared_ptr<const data::Tokenizer>& tokenizer);

}  // namespace spillway::trainer

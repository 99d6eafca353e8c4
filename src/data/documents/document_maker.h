// DocumentMaker turns a line of fine-tuning data into tokens for training, and marks which of them contribute to the loss. Const and
// thread-safe.
#pragma once
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "data/chat/chat_template.h"
#include "data/rows/row.h"
#include "data/tokenizer/tokenizer.h"

namespace spillway::data {

/// Which tokens are targets of the loss. `by_layout` depends on the row's layout: all tokens of a text, the completion of a prompt with
/// completion, the assistant's messages of a conversation, and the labelled tokens of a row of tokens.
enum class LossOn : u8 { by_layout, all, completion, assistant };

struct Document {
  std::vector<i32> ids;
  std::vector<u8> counted;  // 1 if the token is a target; the document's first token never is
  // Positions at which further documents begin that are packed into the same row, ascending and without 0. The tokens there are no targets.
  std::vector<u32> begins{};
  std::vector<std::string> unread{};  // keys of the line that this program does not use (Row::unread)
};

struct DocumentOptions {
  std::optional<RowLayout> layout;  // if none, the layout of each line is recognised by its keys
  LossOn loss_on = LossOn::by_layout;
  // Appended to each text and completion that does not end with it. Conversations end as their chat template says.
  std::optional<i32> end_token;
};

class DocumentMaker {
 public:
  /// `chat` is the template of conversations and `variables` are the values it reads (special_token_variables). Without a template, a
  /// conversation is refused.
  DocumentMaker(std::shared_ptr<const Tokenizer> tokenizer, std::optional<ChatTemplate> chat,
                std::shared_ptr<const nlohmann::ordered_json> variables, const DocumentOptions& options);
  ~DocumentMaker();

  /// Turns a line into a document. A text gets what the tokenizer puts around a text (encode_with_around), and then the end token, unless
  /// it already ends with that. A prompt with its completion is treated as one text. A token counts as part of the completion if it shares
  /// a byte with it, even if it also holds the end of the prompt. This agrees with TRL's SFTTrainer, where the completion begins at the
  /// first token that differs between the prompt alone and both together.
  ///
  /// A conversation becomes what the chat template writes, without the tokenizer's own special tokens. The targets are the template's
  /// generation blocks; without such blocks, what each assistant message adds to the conversation before it rendered with the generation
  /// prompt. Rows of tokens are taken unchanged, without an end token. Throws Error(data) with file and line if the line is no valid row,
  /// if the template raises an error, or if a later message changes how earlier ones are rendered.
  Document make(std::string_view line, const std::string& file, i64 line_number) const;

  /// Returns the tokens that are put before and after each text, including the end token.
  Around around_texts() const;

  const Tokenizer& tokenizer() const { return *tokenizer_; }
  const DocumentOptions& options() const { return options_; }

 private:
  Document of_text(const std::string& text) const;
  Document of_completion(const Row& row) const;
  Document of_tokens(const Row& row) const;
  Document of_messages(const Row& row, const std::string& where) const;
  void put_around(Document& document) const;

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::optional<ChatTemplate> chat_;
  std::shared_ptr<const nlohmann::ordered_json> variables_;
  const DocumentOptions options_;
  std::string end_text_;  // text that the tokenizer maps to the end token; empty if there is none
};

}  // namespace spillway::data

// The stages of decoder.h, one kind each. What they do to a token is what Hugging Face's decoders of the same name do.
#pragma once
#include <memory>

#include "data/tokenizer/decoder.h"
#include "data/tokenizer/pattern.h"

namespace spillway::data {

using StageOwner = std::unique_ptr<DecodeStage>;

/// Tokens joined by spaces.
StageOwner join_stage(DecodeStage& next);
/// Byte characters become bytes, in a token that has others too its own bytes are taken; all tokens are one, in UTF-8.
StageOwner byte_level_stage(DecodeStage& next);
/// Runs of <0xNN> become text, or U+FFFD for each if the run as a whole is not UTF-8.
StageOwner byte_fallback_stage(DecodeStage& next);
/// All tokens are one.
StageOwner fuse_stage(DecodeStage& next);
/// Takes up to `start` and `stop` of this character from both ends of each token.
StageOwner strip_stage(DecodeStage& next, char32_t content, i64 start, i64 stop);
StageOwner replace_stage(DecodeStage& next, std::shared_ptr<const Pattern> pattern, const std::string& content);
/// The replacement becomes a space, and in the first token nothing if `drop_first`.
StageOwner metaspace_stage(DecodeStage& next, char32_t replacement, bool drop_first);
StageOwner word_piece_stage(DecodeStage& next, const std::string& prefix, bool cleanup);
/// The suffix becomes a space, and in the last token nothing.
StageOwner suffix_stage(DecodeStage& next, const std::string& suffix);

}  // namespace spillway::data

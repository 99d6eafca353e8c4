// Reads rows of token ids that other programs made, as Hugging Face's collators, TRL and LLaMA-Factory write them.
#include <fmt/format.h>

#include <algorithm>

#include "data/rows/layouts.h"

namespace spillway::data {
namespace {

constexpr i64 kNotCounted = -100;  // a token with this label does not contribute to the loss: PyTorch's ignore_index

// Reads the list under `key`, which must have one number for each token. Returns an empty list if `key` is missing.
std::vector<i64> beside_tokens(const JsonLine& line, const char* key, size_t tokens, i64 least, bool booleans = false) {
  if (!line.given(key)) return {};
  std::vector<i64> values = line.numbers(key, least, booleans);
  if (values.size() != tokens)
    line.reject_at({key}, fmt::format("expected one number in `{}` for each of {} tokens, got {}", key, tokens, values.size()));
  return values;
}

// Reads the list under `key`, which must have 0 or 1 for each token. Returns an empty list if `key` is missing.
std::vector<i64> mask_beside(const JsonLine& line, const char* key, size_t tokens) {
  std::vector<i64> mask = beside_tokens(line, key, tokens, 0, true);
  const auto other = std::ranges::find_if(mask, [](i64 value) { return value > 1; });
  if (other != mask.end())
    line.reject_at({key, static_cast<size_t>(other - mask.begin())}, fmt::format("expected 0 or 1 in `{}`, got {}", key, *other));
  return mask;
}

// Returns the indices of the tokens that `attention_mask` keeps: all tokens except padding.
std::vector<size_t> kept_of(const JsonLine& line, const std::vector<i64>& mask, size_t tokens) {
  std::vector<size_t> kept;
  bool ended = false;
  for (size_t i = 0; i < tokens; ++i) {
    const bool padding = !mask.empty() && mask[i] == 0;
    if (!padding && ended)
      line.reject_at({"attention_mask", i}, "expected padding only before or after the tokens, got padding between tokens");
    if (padding) ended = !kept.empty();
    if (!padding) kept.push_back(i);
  }
  if (kept.empty()) line.reject_at({"input_ids"}, "expected at least one token in `input_ids`, got none");
  return kept;
}

// Returns for each kept token whether it is a target. If the row has `labels`, the targets are the tokens whose label is
// not -100. Without labels, they are the tokens that every TRL mask in the row selects. Labels of padding are ignored.
std::vector<u8> targets_of(const JsonLine& line, const std::vector<i64>& ids, const std::vector<size_t>& kept) {
  std::vector<u8> counted(ids.size(), 1);
  const std::vector<i64> labels = beside_tokens(line, "labels", ids.size(), kNotCounted);
  for (const size_t i : labels.empty() ? std::vector<size_t>() : kept) {
    if (labels[i] != kNotCounted && labels[i] != ids[i])
      line.reject_at({"labels", i}, fmt::format("expected the label {} or the token {} itself, got {}", kNotCounted, ids[i], labels[i]));
    counted[i] = labels[i] != kNotCounted;
  }
  for (const char* key : {"completion_mask", "assistant_masks"}) {
    const std::vector<i64> mask = mask_beside(line, key, ids.size());
    for (size_t i = 0; labels.empty() && i < mask.size(); ++i) counted[i] &= mask[i] != 0;
  }
  return counted;
}

// The positions at which the second and later documents of a row begin, as one of the row's keys states them.
struct Told {
  const char* key;
  std::vector<u32> begins;
};

Told told_by_mask(const JsonLine& line, const std::vector<i64>& mask, const std::vector<size_t>& kept) {
  Told told{"attention_mask", {}};
  i64 number = 1;
  for (size_t t = 0; t < kept.size(); ++t) {
    const i64 now = mask[kept[t]];
    if (now != number && (now != number + 1 || t == 0))
      line.reject_at(
          {told.key, kept[t]},
          fmt::format("expected 0 for padding, and 1 or the documents' numbers 1, 2, … in ascending order, in `{}`, got {} after {}",
                      told.key, now, t == 0 ? 0 : number));
    if (now != number) told.begins.push_back(static_cast<u32>(t));
    number = now;
  }
  return told;
}

Told told_by_positions(const JsonLine& line, const std::vector<i64>& positions, const std::vector<size_t>& kept) {
  Told told{"position_ids", {}};
  for (size_t t = 0; t < kept.size(); ++t) {
    const i64 now = positions[kept[t]], expected = t == 0 ? 0 : positions[kept[t - 1]] + 1;
    if (now != 0 && now != expected)
      line.reject_at({told.key, kept[t]},
                     fmt::format("expected `{}` that count up by one from 0 in each document, got {} where {} or 0 was expected", told.key,
                                 now, expected));
    if (now == 0 && t > 0) told.begins.push_back(static_cast<u32>(t));
  }
  return told;
}

Told told_by_lengths(const JsonLine& line, size_t tokens) {
  Told told{"seq_lengths", {}};
  i64 sum = 0;
  for (const i64 length : line.numbers(told.key, 1)) {
    if (sum > 0) told.begins.push_back(static_cast<u32>(sum));
    sum += length;
    if (sum > static_cast<i64>(tokens)) break;
  }
  if (sum != static_cast<i64>(tokens))
    line.reject_at({told.key}, fmt::format("expected lengths in `{}` that add up to the row's {} tokens, got {}{}", told.key, tokens, sum,
                                           sum > static_cast<i64>(tokens) ? " or more" : ""));
  return told;
}

// Combines the document borders that the row's keys give, and checks that the keys agree. A mask of only 0 and 1 says nothing about
// documents.
std::vector<u32> begins_of(const JsonLine& line, const std::vector<i64>& mask, const std::vector<size_t>& kept, size_t tokens) {
  std::vector<Told> all;
  if (std::ranges::any_of(mask, [](i64 value) { return value > 1; })) all.push_back(told_by_mask(line, mask, kept));
  const std::vector<i64> positions = beside_tokens(line, "position_ids", tokens, 0);
  if (!positions.empty()) all.push_back(told_by_positions(line, positions, kept));
  if (line.given("seq_lengths")) all.push_back(told_by_lengths(line, kept.size()));
  for (const Told& one : all) {
    if (one.begins != all.front().begins)
      line.reject_at({one.key}, fmt::format("expected `{}` to begin documents at the same tokens as `{}`, got other tokens", one.key,
                                            all.front().key));
  }
  return all.empty() ? std::vector<u32>() : std::move(all.front().begins);
}

void check_token_types(const JsonLine& line, size_t tokens) {
  const std::vector<i64> types = beside_tokens(line, "token_type_ids", tokens, 0);
  const auto other = std::ranges::find_if(types, [](i64 type) { return type != 0; });
  if (other != types.end())
    line.reject_at(
        {"token_type_ids", static_cast<size_t>(other - types.begin())},
        fmt::format("expected 0 in `token_type_ids`, since models that predict the next token have no token types, got {}", *other));
}

}  // namespace

void read_token_row(const JsonLine& line, Row& row) {
  const std::vector<i64> ids = line.numbers("input_ids", 0);
  const std::vector<i64> mask = beside_tokens(line, "attention_mask", ids.size(), 0, true);
  const std::vector<size_t> kept = kept_of(line, mask, ids.size());
  const std::vector<u8> counted = targets_of(line, ids, kept);
  for (const size_t i : kept) {
    row.ids.push_back(static_cast<i32>(ids[i]));
    row.counted.push_back(counted[i]);
  }
  row.begins = begins_of(line, mask, kept, ids.size());
  check_token_types(line, ids.size());
}

}  // namespace spillway::data

#include "data/template/token_mask.h"

#include "base/error.h"

namespace spillway::data {

std::vector<u8> mask_of_spans(std::span<const ByteRange> tokens, std::span<const ByteRange> assistant) {
  for (size_t i = 1; i < assistant.size(); ++i) {
    require(assistant[i - 1].end <= assistant[i].begin,
            "[chat template] expected the assistant's spans in ascending order, got them unordered");
  }
  std::vector<u8> mask(tokens.size(), 0);
  size_t next = 0;  // index of the first span that does not end before the token begins
  for (size_t i = 0; i < tokens.size(); ++i) {
    require(i == 0 || tokens[i - 1].begin <= tokens[i].begin, "[chat template] expected the tokens in ascending order, got them unordered");
    while (next < assistant.size() && assistant[next].end <= tokens[i].begin) ++next;
    for (size_t s = next; s < assistant.size() && assistant[s].begin < tokens[i].end; ++s) {
      if (assistant[s].end > tokens[i].begin && assistant[s].end > assistant[s].begin && tokens[i].end > tokens[i].begin) mask[i] = 1;
    }
  }
  return mask;
}

}  // namespace spillway::data

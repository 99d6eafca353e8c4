// Tests the messages between ranks (ProcessLetter): serialization and parsing round-trip, and
// malformed bytes are refused before anything is constructed from them.
#include "parallel/comm/process_letter.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "base/error.h"

namespace spillway::parallel::process_letter_test {
namespace {

using Bytes = std::vector<std::byte>;

ComingCall a_call() {
  ComingCall coming;
  coming.call = {.what = Collective::reduce_scatter,
                 .parts = {0, 100, 250},
                 .dtype = DType::bf16,
                 .reduction = Reduction::max,
                 .root = 1,
                 .color = -2};
  coming.call.gives = {static_cast<const std::byte*>(nullptr), 500};
  coming.next_group = 7;
  coming.area = -1;
  return coming;
}

ProcessLetter a_letter() {
  return {.kind = ProcessLetter::Kind::came, .group = 3, .a = 9, .b = -1, .c = 5, .words = a_call().to_words(), .text = "why"};
}

TEST(ProcessLetter, ComesBackAsItWas) {
  const ProcessLetter letter = ProcessLetter::of(a_letter().to_bytes());
  EXPECT_EQ(letter.to_bytes(), a_letter().to_bytes());
  const ComingCall call = ComingCall::of(letter.words);
  EXPECT_EQ(call.to_words(), a_call().to_words());
  EXPECT_EQ(call.call.parts, (Parts{0, 100, 250}));
  EXPECT_EQ(call.call.gives.size(), 500u);
}

TEST(ProcessLetter, CountsBeyondItsEndAreRefused) {
  const Bytes good = a_letter().to_bytes();
  for (size_t field = 5; field < 7; ++field) {
    for (const i64 count : {i64{-1}, i64{1} << 40, i64{1} << 62, std::numeric_limits<i64>::max(), std::numeric_limits<i64>::min()}) {
      Bytes bad = good;
      std::memcpy(bad.data() + field * sizeof count, &count, sizeof count);
      EXPECT_THROW(ProcessLetter::of(bad), Error) << field << " " << count;
    }
  }
  for (size_t bytes = 0; bytes < good.size(); ++bytes) EXPECT_THROW(ProcessLetter::of(std::span(good).first(bytes)), Error) << bytes;
  std::vector<i64> words = a_call().to_words();
  for (const i64 count : {i64{-1}, i64{4}, i64{1} << 61}) {
    words[9] = count;
    EXPECT_THROW(ComingCall::of(words), Error) << count;
  }
  EXPECT_THROW(ComingCall::of({}), Error);
}

TEST(ProcessLetter, FuzzedLettersAreLettersOrRefused) {
  std::mt19937_64 random(1);
  const Bytes good = a_letter().to_bytes();
  int taken = 0, refused = 0;
  for (int k = 0; k < 50'000; ++k) {
    Bytes bytes = good;
    for (int flips = 1 + static_cast<int>(random() % 4); flips > 0; --flips)
      bytes[random() % bytes.size()] ^= static_cast<std::byte>(1 << random() % 8);
    if (random() % 4 == 0) bytes.resize(random() % (2 * good.size()));
    try {
      const ProcessLetter letter = ProcessLetter::of(bytes);
      EXPECT_EQ(letter.to_bytes(), bytes);
      ++taken;
      const ComingCall call = ComingCall::of(letter.words);
      EXPECT_EQ(call.to_words(), letter.words);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::peer);
      ++refused;
    }
  }
  EXPECT_GT(taken, 1000);
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace spillway::parallel::process_letter_test

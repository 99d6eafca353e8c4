#include "parallel/comm/process_letter.h"

#include <cstring>

namespace spillway::parallel {
namespace {

void put(std::vector<std::byte>& bytes, const void* from, size_t count) {
  const auto* begin = static_cast<const std::byte*>(from);
  bytes.insert(bytes.end(), begin, begin + count);
}

class Reader {
 public:
  explicit Reader(const std::vector<std::byte>& bytes) : bytes_(bytes) {}
  void take(void* to, size_t count) {
    if (count > 0) std::memcpy(to, bytes_.data() + at_, count);
    at_ += count;
  }
  i64 number() {
    i64 value = 0;
    take(&value, sizeof value);
    return value;
  }

 private:
  const std::vector<std::byte>& bytes_;
  size_t at_ = 0;
};

void put_parts(std::vector<i64>& words, const Parts& parts) {
  words.push_back(std::ssize(parts));
  words.insert(words.end(), parts.begin(), parts.end());
}

Parts take_parts(const i64*& word) {
  const i64 count = *word++;
  Parts parts(word, word + count);
  word += count;
  return parts;
}

}  // namespace

std::vector<std::byte> ProcessLetter::to_bytes() const {
  std::vector<std::byte> bytes;
  for (const i64 field : {static_cast<i64>(kind), group, a, b, c, std::ssize(words), std::ssize(text)}) put(bytes, &field, sizeof field);
  put(bytes, words.data(), words.size() * sizeof(i64));
  put(bytes, text.data(), text.size());
  return bytes;
}

ProcessLetter ProcessLetter::of(const std::vector<std::byte>& bytes) {
  Reader reader(bytes);
  ProcessLetter letter;
  letter.kind = static_cast<Kind>(reader.number());
  for (i64* field : {&letter.group, &letter.a, &letter.b, &letter.c}) *field = reader.number();
  letter.words.resize(static_cast<size_t>(reader.number()));
  letter.text.resize(static_cast<size_t>(reader.number()));
  reader.take(letter.words.data(), letter.words.size() * sizeof(i64));
  reader.take(letter.text.data(), letter.text.size());
  return letter;
}

std::vector<i64> ComingCall::to_words() const {
  std::vector<i64> words = {static_cast<i64>(call.what),
                            static_cast<i64>(call.dtype),
                            static_cast<i64>(call.reduction),
                            call.root,
                            call.color,
                            std::ssize(call.gives),
                            std::ssize(call.gets),
                            next_group,
                            area};
  put_parts(words, call.parts);
  return words;
}

ComingCall ComingCall::of(const std::vector<i64>& words) {
  const i64* word = words.data();
  ComingCall coming;
  Call& call = coming.call;
  call.what = static_cast<Collective>(*word++);
  call.dtype = static_cast<DType>(*word++);
  call.reduction = static_cast<Reduction>(*word++);
  call.root = static_cast<int>(*word++);
  call.color = static_cast<int>(*word++);
  call.gives = {static_cast<const std::byte*>(nullptr), static_cast<size_t>(*word++)};
  call.gets = {static_cast<std::byte*>(nullptr), static_cast<size_t>(*word++)};
  coming.next_group = *word++;
  coming.area = *word++;
  call.parts = take_parts(word);
  return coming;
}

}  // namespace spillway::parallel

#include "parallel/comm/process_letter.h"

#include <cstring>
#include <limits>

#include "base/error.h"

namespace spillway::parallel {
namespace {

constexpr i64 kMostGroups = i64{1} << 40;  // most groups that a run may have, so that group numbers cannot overflow

void put(std::vector<std::byte>& bytes, const void* from, size_t count) {
  const auto* begin = static_cast<const std::byte*>(from);
  bytes.insert(bytes.end(), begin, begin + count);
}

[[noreturn]] void reject(const char* what) {
  throw Error(ErrorCode::peer, std::string("[communicator] expected a valid message from each rank, got one with ") + what);
}

// Reads fields one after the other. Before a count is used, it is checked against the number of bytes that are left.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : left_(bytes) {}
  void take(void* to, size_t count) {
    if (count > left_.size()) reject("fewer bytes than its header states");
    if (count > 0) std::memcpy(to, left_.data(), count);
    left_ = left_.subspan(count);
  }
  i64 number() {
    i64 value = 0;
    take(&value, sizeof value);
    return value;
  }
  // Reads a count of items, each of which takes `each` bytes.
  size_t count(size_t each) {
    const i64 n = number();
    if (n < 0 || static_cast<u64>(n) > left_.size() / each) reject("a count that exceeds its remaining bytes");
    return static_cast<size_t>(n);
  }
  bool is_empty() const { return left_.empty(); }

 private:
  std::span<const std::byte> left_;
};

template <class E>
E kind_up_to(i64 number, E last) {
  if (number < 0 || number > static_cast<i64>(last)) reject("an unknown kind");
  return static_cast<E>(number);
}

int small_number(i64 number) {
  if (number < std::numeric_limits<int>::min() || number > std::numeric_limits<int>::max()) reject("a number that is too large");
  return static_cast<int>(number);
}

size_t size_of_buffer(i64 number) {
  if (number < 0) reject("a size below 0");
  return static_cast<size_t>(number);
}

void put_parts(std::vector<i64>& words, const Parts& parts) {
  words.push_back(std::ssize(parts));
  words.insert(words.end(), parts.begin(), parts.end());
}

}  // namespace

std::vector<std::byte> ProcessLetter::to_bytes() const {
  std::vector<std::byte> bytes;
  for (const i64 field : {static_cast<i64>(kind), group, a, b, c, std::ssize(words), std::ssize(text)}) put(bytes, &field, sizeof field);
  put(bytes, words.data(), words.size() * sizeof(i64));
  put(bytes, text.data(), text.size());
  return bytes;
}

ProcessLetter ProcessLetter::of(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  ProcessLetter letter;
  letter.kind = kind_up_to(reader.number(), Kind::alive);
  for (i64* field : {&letter.group, &letter.a, &letter.b, &letter.c}) *field = reader.number();
  const size_t words = reader.count(1), text = reader.count(1);  // the two counts precede the words and the text that they count
  if (words > bytes.size() / sizeof(i64)) reject("a count that exceeds its remaining bytes");
  letter.words.resize(words);
  letter.text.resize(text);
  reader.take(letter.words.data(), letter.words.size() * sizeof(i64));
  reader.take(letter.text.data(), letter.text.size());
  if (!reader.is_empty()) reject("more bytes than its header states");
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
  Reader reader(std::as_bytes(std::span(words)));
  ComingCall coming;
  Call& call = coming.call;
  call.what = kind_up_to(reader.number(), Collective::split);
  call.dtype = kind_up_to(reader.number(), DType::boolean);
  call.reduction = kind_up_to(reader.number(), Reduction::max);
  call.root = small_number(reader.number());
  call.color = small_number(reader.number());
  call.gives = {static_cast<const std::byte*>(nullptr), size_of_buffer(reader.number())};
  call.gets = {static_cast<std::byte*>(nullptr), size_of_buffer(reader.number())};
  coming.next_group = reader.number();
  coming.area = reader.number();
  if (coming.next_group < 0 || coming.next_group > kMostGroups || coming.area < -1) reject("an invalid group number or staging area");
  call.parts.resize(reader.count(sizeof(i64)));
  reader.take(call.parts.data(), call.parts.size() * sizeof(i64));
  if (!reader.is_empty()) reject("more words than its header states");
  return coming;
}

}  // namespace spillway::parallel

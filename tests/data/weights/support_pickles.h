// Makes pickles (protocol 2) and archives as torch.save writes them. The functions
// do not use torch, so that a test can make files that no program writes.
#pragma once
#include <zlib.h>

#include <cstring>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "base/types.h"

namespace spillway::test::pickles {

template <class T>
std::string little(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

inline std::string joined(const std::vector<std::string>& parts) {
  std::string all;
  for (const std::string& part : parts) all += part;
  return all;
}
inline std::string repeated(const std::string& part, size_t times) {
  std::string all;
  for (size_t i = 0; i < times; ++i) all += part;
  return all;
}

inline const std::string none = "N", no = "\x89";
inline std::string text(const std::string& chars) { return "X" + little(static_cast<u32>(chars.size())) + chars; }
inline std::string number(i64 value) {
  if (value >= 0 && value < 256) return "K" + std::string(1, static_cast<char>(value));
  return "\x8a\x08" + little(value);
}
inline std::string global(const std::string& module, const std::string& name) { return "c" + module + "\n" + name + "\n"; }
inline std::string tuple(const std::vector<std::string>& items) { return "(" + joined(items) + "t"; }
inline std::string list(const std::vector<std::string>& items) { return "](" + joined(items) + "e"; }
/// Makes a dictionary. `items` alternates keys and values.
inline std::string dict(const std::vector<std::string>& items) { return "}(" + joined(items) + "u"; }
inline std::string call(const std::string& what, const std::vector<std::string>& arguments) { return what + tuple(arguments) + "R"; }
/// Makes an object of class `of` with the given attributes.
inline std::string object(const std::string& of, const std::vector<std::string>& attributes) {
  return of + ")\x81" + dict(attributes) + "b";
}
inline std::string numbers(const std::vector<i64>& values) {
  std::vector<std::string> items;
  for (const i64 value : values) items.push_back(number(value));
  return tuple(items);
}
/// The bytes of put() make the pickle remember the value on the stack as number `at`. Those of get() push that value again.
inline std::string put(u32 at) { return "r" + little(at); }
inline std::string get(u32 at) { return at < 256 ? "h" + std::string(1, static_cast<char>(at)) : "j" + little(at); }
/// Makes a pickle remember a value as number `at`, for get(), and leave nothing on the stack.
inline std::string kept(const std::string& value, u32 at) { return value + put(at) + "0"; }

inline std::string pickle(const std::string& value) { return "\x80\x02" + value + "."; }

struct TensorBytes {
  std::string type = "FloatStorage", key = "0";
  i64 offset = 0;
  std::vector<i64> sizes = {1}, strides = {1};
};
inline std::string tensor(const TensorBytes& of = {}) {
  const std::string storage = tuple({text("storage"), global("torch", of.type), text(of.key), text("cpu"), number(1)}) + "Q";
  return call(global("torch._utils", "_rebuild_tensor_v2"),
              {storage, number(of.offset), numbers(of.sizes), numbers(of.strides), no, call(global("collections", "OrderedDict"), {})});
}

// pairs of a member's name and its bytes, one for each file in an archive
using Members = std::vector<std::pair<std::string, std::string>>;

/// Makes a zip archive with uncompressed members. The directory claims `claimed` more bytes for the last member than it has.
inline std::string archive(const Members& members, u32 claimed = 0) {
  std::string all, directory;
  for (const auto& [name, bytes] : members) {
    const auto crc = static_cast<u32>(crc32(0, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size())));
    const u32 size = static_cast<u32>(bytes.size()), said = size + (&name == &members.back().first ? claimed : 0);
    const std::string rest = little<u16>(0) + little<u16>(0) + little<u16>(0) + little<u16>(0x21) + little(crc) + little(size) +
                             little(said) + little(static_cast<u16>(name.size())) + little<u16>(0);
    directory += "PK\1\2" + little<u16>(20) + little<u16>(20) + rest + little<u16>(0) + little<u16>(0) + little<u16>(0) + little<u32>(0) +
                 little(static_cast<u32>(all.size())) + name;
    all += "PK\3\4" + little<u16>(20) + rest + name + bytes;
  }
  const auto begin = static_cast<u32>(all.size()), count = static_cast<u32>(members.size());
  return all + directory + "PK\5\6" + little<u16>(0) + little<u16>(0) + little(static_cast<u16>(count)) + little(static_cast<u16>(count)) +
         little(static_cast<u32>(directory.size())) + little(begin) + little<u16>(0);
}
/// Returns the file that torch.save would write for a value. `storages` holds the bytes of each storage by key.
inline std::string torch_file(const std::string& value, const Members& storages = {{"0", std::string(4, '\0')}}) {
  Members members{{"archive/data.pkl", pickle(value)}};
  for (const auto& [key, bytes] : storages) members.emplace_back("archive/data/" + key, bytes);
  return archive(members);
}

// Splits a pickle into its instructions, which a fuzzer can swap, repeat and leave out.
inline std::vector<std::string> instructions(const std::string& bytes) {
  std::vector<std::string> all;
  for (size_t at = 0; at < bytes.size();) {
    const auto count = [&](size_t width) {
      u64 value = 0;
      std::memcpy(&value, bytes.data() + at + 1, std::min(width, bytes.size() - at - 1));
      return 1 + width + static_cast<size_t>(value);
    };
    const char opcode = bytes[at];
    size_t length = 1;
    if (std::strchr("Kqh\x80", opcode)) length = 2;
    if (opcode == 'M') length = 3;
    if (std::strchr("Jrj", opcode)) length = 5;
    if (opcode == 'G' || opcode == '\x95') length = 9;
    if (std::strchr("\x8a\x8cUC", opcode)) length = count(1);
    if (std::strchr("XTB\x8b", opcode)) length = count(4);
    if (opcode == 'c') length = bytes.find('\n', bytes.find('\n', at) + 1) + 1 - at;
    length = std::min(length, bytes.size() - at);
    all.push_back(bytes.substr(at, length));
    at += length;
  }
  return all;
}

/// Makes another pickle of these instructions: some are left out, swapped or repeated, numbers become extreme, and values are
/// replaced by remembered ones, which makes values that are shared or contain themselves. `random(n)` returns a number below n.
template <class Random>
std::string mutated(std::vector<std::string> all, Random& random) {
  static const std::vector<std::string> kValues = {none,
                                                   number(0),
                                                   number(1),
                                                   number(-1),
                                                   number(i64{1} << 31),
                                                   number(i64{1} << 59),
                                                   number(i64{1} << 62),
                                                   "}",
                                                   "]",
                                                   ")",
                                                   text("storage"),
                                                   text("0"),
                                                   text(""),
                                                   tuple({number(3), number(5)}),
                                                   "\x88",
                                                   std::string("G\x7f\xf0\0\0\0\0\0\0", 9),
                                                   "\x8a\x09" + std::string(9, '\x7f')};
  for (u64 changes = 1 + random(4); changes > 0; --changes) {
    const size_t at = random(all.size()), other = random(all.size());
    const auto here = all.begin() + static_cast<std::ptrdiff_t>(at);
    switch (random(9)) {
      case 0:
        all.erase(here);
        break;
      case 1:
        std::swap(all[at], all[other]);
        break;
      case 2: {  // this mutation repeats a range of instructions
        const size_t from = std::min(at, other), to = std::min(std::max(at, other), from + 40);
        const std::vector<std::string> some(all.begin() + static_cast<std::ptrdiff_t>(from), all.begin() + static_cast<std::ptrdiff_t>(to));
        all.insert(here, some.begin(), some.end());
        break;
      }
      case 3:
        all[at] = kValues[random(kValues.size())];
        break;
      case 4:
        all.insert(here, kValues[random(kValues.size())]);
        break;
      case 5:  // this mutation replaces a value by a remembered one
      case 6:
        all[at] = get(static_cast<u32>(random(300)));
        break;
      case 7:
        all.insert(here, put(static_cast<u32>(random(300))));
        break;
      default:
        if (all[at].size() > 1) all[at][1 + random(all[at].size() - 1)] = static_cast<char>(random(256));
    }
    if (all.empty()) return "";
  }
  return joined(all);
}

struct Random {
  u64 state;
  u64 operator()(u64 below) { return ((state = state * 6364136223846793005u + 1442695040888963407u) >> 33) % below; }
};

}  // namespace spillway::test::pickles

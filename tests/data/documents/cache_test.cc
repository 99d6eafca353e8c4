// Tests the names of prepared (tokenized) data in the cache, and how long they are kept.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_map>

#include "base/crc32c.h"
#include "base/random.h"
#include "data/documents/content_hash.h"
#include "data/documents/prepare.h"
#include "data/tokenizer/byte_tokenizer.h"
#include "tests/data/support_files.h"

namespace spillway::data::cache_test {
namespace {

using test::put;
using test::TemporaryFolder;
namespace fs = std::filesystem;

DocumentMaker maker_of(const DocumentOptions& options = {}) {
  return {std::make_shared<ByteTokenizer>(), {}, std::make_shared<const nlohmann::ordered_json>(nlohmann::ordered_json::object()), options};
}

PreparationOptions options_in(const fs::path& cache) {
  PreparationOptions options;
  options.cache = cache, options.tokenizer = "bytes", options.threads = 2;
  return options;
}

std::set<std::string> names_in(const fs::path& cache) {
  std::set<std::string> names;
  std::error_code not_there;
  for (const auto& entry : fs::directory_iterator(cache, not_there)) {
    if (entry.path().extension() == ".tokens") names.insert(entry.path().filename().string());
  }
  return names;
}

// Prepares (tokenizes) a source into a new cache, and returns the name of the file that the cache then holds.
std::string name_of(const fs::path& path, const DocumentOptions& documents = {}, PreparationOptions options = options_in("")) {
  const TemporaryFolder folder;
  options.cache = folder / "cache";
  prepare(path, maker_of(documents), options);
  const auto names = names_in(options.cache);
  EXPECT_EQ(names.size(), 1u);
  return *names.begin();
}

TEST(ContentHash, IsTheSameForTheSameWhateverTheThreads) {
  const TemporaryFolder folder;
  std::string bytes(9 << 20, 'x');
  for (size_t i = 0; i < bytes.size(); i += 1000) bytes[i] = static_cast<char>(i / 1000);
  const std::string one = hash_of_file(put(folder / "a", bytes), 1);
  EXPECT_EQ(hash_of_file(folder / "a", 3), one);
  EXPECT_EQ(one.size(), 64u);
  std::set<std::string> all = {one};
  for (const size_t at : {size_t{0}, size_t{4 << 20}, bytes.size() - 1}) {
    std::string other = bytes;
    other[at] ^= 1;
    all.insert(hash_of_file(put(folder / "b", other), 2));
  }
  std::string turned = bytes.substr(4 << 20, 4 << 20) + bytes.substr(0, 4 << 20) + bytes.substr(8 << 20);
  all.insert(hash_of_file(put(folder / "b", turned), 2));
  all.insert(hash_of_file(put(folder / "b", bytes + "x"), 2));
  all.insert(hash_of_file(put(folder / "b", ""), 2));
  EXPECT_EQ(all.size(), 7u);
  // The expected values are BLAKE2b-256 hashes of "", "0:" and "3:abc", made with Python's hashlib.blake2b(…, digest_size=32).
  EXPECT_EQ(hash_of_fields({}), "0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8");
  EXPECT_EQ(hash_of_fields({""}), "1dc653a1447946592fe2871eeb01d8fd6ae353bf04ab789199e38777da3fd0c7");
  EXPECT_EQ(hash_of_fields({"abc"}), "1476d716441cff8fd5e6c1462e445b6323738059e9e35f4c2de5cacd7784ef2a");
  EXPECT_NE(hash_of_fields({"a", "bc"}), hash_of_fields({"ab", "c"}));
}

// Files with equal checksums get different hashes. The test tries random lines of equal length until two have the same CRC32C.
TEST(ContentHash, TellsFilesApartWhoseChecksumsAreEqual) {
  const auto text = [](u64 i) {
    const RandomKey key = RandomKey{7}.derive("line", i);
    std::string line = "{\"text\": \"";
    for (u64 c = 0; c < 16; ++c) line += static_cast<char>('a' + static_cast<int>(uniform(key, 0, c) * 26));
    return line + "\"}\n";
  };
  std::unordered_map<u32, u64> seen;
  u64 first = 0, second = 0;
  for (; second < 1'000'000; ++second) {
    const std::string line = text(second);
    const auto [same, is_new] = seen.emplace(crc32c(std::as_bytes(std::span(line))), second);
    first = same->second;
    if (!is_new) break;
  }
  ASSERT_NE(text(first), text(second));
  const TemporaryFolder folder;
  const fs::path a = put(folder / "a.jsonl", text(first)), b = put(folder / "b.jsonl", text(second));
  const std::string one = test::bytes_of(a), other = test::bytes_of(b);
  ASSERT_EQ(crc32c(std::as_bytes(std::span(one))), crc32c(std::as_bytes(std::span(other))));
  EXPECT_NE(name_of(a), name_of(b));
}

TEST(Cache, HasAnotherNameForAnythingThatChangesRows) {
  const TemporaryFolder folder;
  const std::string row = R"({"prompt": "a", "completion": "b"})";
  const fs::path path = put(folder / "a.jsonl", row + "\n");
  std::set<std::string> names = {name_of(path)};
  const auto changed = [&](DocumentOptions documents, PreparationOptions options = options_in("")) {
    EXPECT_TRUE(names.insert(name_of(path, documents, options)).second) << "the name of other rows";
  };
  changed({.layout = RowLayout::completion});
  changed({.loss_on = LossOn::all});
  changed({.end_token = 0});
  changed({.end_token = 1});
  PreparationOptions options = options_in("");
  options.tokenizer = "other";
  changed({}, options);
  options = options_in("");
  options.chat = "template";
  changed({}, options);
  options = options_in("");
  options.skip_bad_lines = true;
  changed({}, options);
  put(folder / "a.txt", row + "\n");
  EXPECT_TRUE(names.insert(name_of(folder / "a.txt")).second) << "rows, or a stream";
  put(path, row);
  EXPECT_TRUE(names.insert(name_of(path)).second);
  options = options_in("");
  options.threads = 1;
  EXPECT_EQ(name_of(path, {}, options), name_of(path)) << "threads change no rows";
  // The cache's name covers the boundary between two files of a folder: moving a letter from one file to the next changes the name.
  fs::create_directories(folder / "t");
  put(folder / "t/a.txt", "ab"), put(folder / "t/b.txt", "c");
  const std::string before = name_of(folder / "t");
  put(folder / "t/a.txt", "a"), put(folder / "t/b.txt", "bc");
  EXPECT_NE(name_of(folder / "t"), before);
}

// Returns the inode number of a file. It changes when the cache replaces the file.
u64 inode_of(const fs::path& file) {
  struct stat info {};
  EXPECT_EQ(::stat(file.c_str(), &info), 0);
  return info.st_ino;
}

struct KeptFiles : testing::Test {
  // Prepares `file` with the tokenizer of this name. Returns the name of the new file in the cache, or "" if the cache had one.
  std::string made(const std::string& tokenizer, const fs::path& file) {
    const auto before = names_in(cache);
    PreparationOptions options = options_in(cache);
    options.tokenizer = tokenizer;
    last = prepare(file, maker_of(), options);
    for (const std::string& name : names_in(cache)) {
      if (!before.contains(name)) return name;
    }
    return "";
  }
  TemporaryFolder folder;
  const fs::path cache = folder / "cache", path = put(folder / "a.jsonl", "{\"text\": \"abc\"}\n");
  std::unique_ptr<PreparedFile> last;
};

TEST_F(KeptFiles, AreFoundByTheirContentsWhateverTheSource) {
  const std::string name = made("t", path);
  const u64 inode = inode_of(cache / name);
  EXPECT_EQ(made("t", path), "");
  EXPECT_EQ(made("t", put(folder / "b.jsonl", test::bytes_of(path))), "") << "the same contents of another source";
  EXPECT_EQ(inode_of(cache / name), inode);
  // A damaged file in the cache is made again from the source as it is now, and is then used.
  put(cache / name, "damaged");
  EXPECT_NE(made("t", folder / "b.jsonl"), "");
  EXPECT_EQ(last->counts().documents, 1);
  EXPECT_EQ(made("t", path), "");
}

TEST_F(KeptFiles, AreTheTwoOfASourceUsedLast) {
  const std::string other = made("t", put(folder / "other.jsonl", "{\"text\": \"bcd\"}\n"));
  const std::string first = made("1", path), second = made("2", path);
  EXPECT_EQ(made("1", path), "") << "used again";
  const std::string third = made("3", path);
  EXPECT_EQ(names_in(cache), (std::set{other, first, third}));
  const std::string fourth = made("4", path);
  EXPECT_EQ(names_in(cache), (std::set{other, third, fourth}));
}

TEST_F(KeptFiles, StayWhileSomeoneHasThemOpen) {
  const std::string first = made("1", path);
  const auto open = std::move(last);
  std::array<int, 2> ready{}, leave{};
  ASSERT_TRUE(::pipe(ready.data()) == 0 && ::pipe(leave.data()) == 0);
  const std::string second = made("2", path);
  last.reset();
  const pid_t other = ::fork();
  if (other == 0) {
    ::close(leave[1]);
    const PreparedFile held(cache / second, "held");
    char byte = 'r';
    if (::write(ready[1], &byte, 1) == 1) static_cast<void>(::read(leave[0], &byte, 1));
    ::_exit(0);
  }
  ::close(leave[0]);
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  const std::string third = made("3", path), fourth = made("4", path), fifth = made("5", path);
  EXPECT_EQ(names_in(cache), (std::set{first, second, fourth, fifth})) << "one is open here, one in another process";
  ::close(leave[1]);
  ASSERT_EQ(::waitpid(other, nullptr, 0), other);
  ::close(ready[0]), ::close(ready[1]);
  const std::string sixth = made("6", path);
  EXPECT_EQ(names_in(cache), (std::set{first, fifth, sixth}));
  EXPECT_EQ(open->counts().documents, 1);
}

}  // namespace
}  // namespace spillway::data::cache_test

// Tests the file of --rendezvous file:PATH: who owns it, who may read it, and who removes it.
#include "parallel/sockets/meeting_place.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "tests/support/temporary_folder.h"

namespace spillway::parallel::meeting_place_test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

struct MeetingFile : testing::Test {
  const test::TemporaryFolder folder;
  const fs::path file = folder / "place";
  std::string place() const { return "file:" + file.string(); }
  std::string why_not() const {
    std::string why;
    EXPECT_FALSE(MeetingPlace(place()).reach("", deadline_in(1), why).socket);
    return why;
  }
};

TEST_F(MeetingFile, IsTakenAwayByWhoWroteItAlone) {
  MeetingPlace first(place()), second(place());
  const auto a = first.open("a");
  const auto b = second.open("b");
  first.close();
  std::string why;
  EXPECT_EQ(MeetingPlace(place()).reach("", deadline_in(5), why).token, "b") << why;
  second.close();
  EXPECT_FALSE(fs::exists(file));
}

TEST_F(MeetingFile, OnlyAnOwnFileIsRead) {
  EXPECT_EQ(why_not(), "the file does not exist");
  std::ofstream(folder / "other") << "token\n127.0.0.1 1\n";
  ASSERT_EQ(chmod((folder / "other").c_str(), 0600), 0);
  fs::create_symlink(folder / "other", file);
  EXPECT_THAT(why_not(), HasSubstr("cannot be opened"));
  fs::remove(file);
  ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
  EXPECT_THAT(why_not(), HasSubstr("not a regular file"));
  fs::remove(file);
  fs::copy_file(folder / "other", file);
  ASSERT_EQ(chmod(file.c_str(), 0640), 0);
  EXPECT_THAT(why_not(), HasSubstr("readable by other users"));
  ASSERT_EQ(chmod(file.c_str(), 0600), 0);
  EXPECT_THAT(why_not(), HasSubstr("an address in the file"));
}

// Shows that no temporary file with the token in it is left behind if opening the rendezvous fails.
TEST_F(MeetingFile, NothingIsLeftBesideIt) {
  fs::create_directory(file);
  MeetingPlace there(place());
  try {
    there.open("a");
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("Is a directory"));
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()), 1);
}

}  // namespace
}  // namespace spillway::parallel::meeting_place_test

#include "support/command.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "support/temporary_folder.h"

namespace troika {
namespace {

std::string content(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

[[noreturn]] void become_troika(const std::vector<std::string>& arguments, const std::string& folder,
                                const TemporaryFolder& texts, int deadline_seconds) {
  const std::string program = TROIKA_BINARY_DIR "/troika";
  std::vector<char*> argv{const_cast<char*>("troika")};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  ::dup2(::open((texts / "in").c_str(), O_RDONLY), STDIN_FILENO);
  ::dup2(::open((texts / "out").c_str(), O_WRONLY | O_CREAT, 0600), STDOUT_FILENO);
  ::dup2(::open((texts / "err").c_str(), O_WRONLY | O_CREAT, 0600), STDERR_FILENO);
  if (!folder.empty() && ::chdir(folder.c_str()) != 0) ::_exit(126);
  ::alarm(static_cast<unsigned>(deadline_seconds));  // its default action ends the program
  ::execv(program.c_str(), argv.data());
  ::_exit(127);
}

}  // namespace

CommandResult run_troika(const std::vector<std::string>& arguments, const std::string& folder,
                         int deadline_seconds, const std::string& input) {
  const TemporaryFolder texts;
  std::ofstream(texts / "in") << input;
  const pid_t child = ::fork();
  if (child == 0) become_troika(arguments, folder, texts, deadline_seconds);
  int status = 0;
  ::waitpid(child, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), content(texts / "out"),
          content(texts / "err")};
}

}  // namespace troika

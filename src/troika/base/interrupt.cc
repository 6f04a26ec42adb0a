#include "troika/base/interrupt.h"

#include <csignal>

namespace troika {
namespace {

volatile std::sig_atomic_t signal_seen = 0;
struct sigaction previous_interrupt, previous_terminate;

void on_signal(int signal) {
  signal_seen = 1;
  // The next one gets the default treatment: a run that doesn't end cleanly can still be stopped.
  std::signal(signal, SIG_DFL);
}

}  // namespace

InterruptGuard::InterruptGuard() {
  signal_seen = 0;
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &previous_interrupt);
  sigaction(SIGTERM, &action, &previous_terminate);
}

InterruptGuard::~InterruptGuard() {
  signal_seen = 0;
  sigaction(SIGINT, &previous_interrupt, nullptr);
  sigaction(SIGTERM, &previous_terminate, nullptr);
}

bool interrupted() { return signal_seen != 0; }

}  // namespace troika

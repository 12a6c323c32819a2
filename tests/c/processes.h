/* Tests of what a whole process does: the program runs itself with a role, and looks at how that
 * ends. */
#ifndef PROCESSES_H
#define PROCESSES_H

#include "fixture.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

/* A process that exits in the middle of work leaves what is in use as it is: LeakSanitizer asks
 * this function whether to look. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void) {
    return 1;
}

/* Longer than any role takes, on a busy machine too. */
#define LIMIT_SECONDS 60

/* How a process ended: its exit code, 1000 + the signal that killed it, 2000 if it hung. */
static inline int end_of(pid_t process) {
    const struct timespec pause = {0, 5000000};
    time_t limit = time(NULL) + LIMIT_SECONDS;
    int status = 0;
    for (;;) {
        pid_t ended = waitpid(process, &status, WNOHANG);
        if (ended == process) {
            return WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status);
        }
        if (ended < 0 && errno != EINTR) {
            return -1;
        }
        if (time(NULL) > limit) {
            kill(process, SIGKILL);
            waitpid(process, &status, 0);
            return 2000;
        }
        nanosleep(&pause, NULL);
    }
}

static char **own_arguments;

/* How this program ends in that role. */
static inline int end_of_role(const char *role) {
    fflush(stdout);
    pid_t process = fork();
    if (process == 0) {
        execl("/proc/self/exe", own_arguments[0], role, (char *)NULL);
        execl(own_arguments[0], own_arguments[0], role, (char *)NULL);
        _exit(127);
    }
    return end_of(process);
}

/* In a role, a failed check is exit code 99. */
static inline void require_checks(void) {
    if (checks_failed > 0) {
        _exit(99);
    }
}

#endif

/* Files that are mapped into memory, and become shorter meanwhile or get no room on their disk. */
#pragma once

/* From now on such a file ends the program with an error line that names it and status 1, rather than by SIGBUS. */
void cli_catch_bus_errors(void);

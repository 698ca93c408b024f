package realbroker;

import java.io.IOException;
import java.util.Arrays;

/**
 * Runs the main of a server for as long as this process' standard input is open: however the one who started it ends,
 * the server does not outlive it.
 *
 * <p>Arguments: the class, and what its main gets.
 */
public final class Guarded {
    public static void main(String[] args) throws Exception {
        Thread guard = new Thread(Guarded::awaitEndOfInput, "guard");
        guard.setDaemon(true);
        guard.start();
        Object rest = Arrays.copyOfRange(args, 1, args.length);
        Class.forName(args[0]).getMethod("main", String[].class).invoke(null, rest);
    }

    private static void awaitEndOfInput() {
        try {
            while (System.in.read() >= 0) {
                // nothing is ever said
            }
        } catch (IOException closed) {
            // the same as its end
        }
        Runtime.getRuntime().halt(1);
    }
}
